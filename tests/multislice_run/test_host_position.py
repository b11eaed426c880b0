import socket

from multislice_run.pod import HostPosition


def test_the_only_host_of_a_slice_has_a_name_of_its_own() -> None:
    assert HostPosition.of({"TPU_WORKER_HOSTNAMES": "localhost"}).host == socket.gethostname()
    assert HostPosition.of({"TPU_WORKER_HOSTNAMES": "job-slice-1-0.job"}).host == "job-slice-1-0.job"

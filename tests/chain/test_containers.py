"""A program that is not ours on the slices of a stack, beside a training job of the same stack."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.chain.shared import SLEEPER
from tests.chain.stack import Chain, Operations, ignore
from tests.infra.one_job import unnamed
from tests.infra.recording import Values, stack_values

pytestmark = pytest.mark.complete

PROGRAM = """
import os, socket, sys, time
slice_id, worker = int(os.environ["MEGASCALE_SLICE_ID"]), int(os.environ["TPU_WORKER_ID"])
hosts = os.environ["TPU_WORKER_HOSTNAMES"].split(",")
everyone = int(os.environ["MEGASCALE_NUM_SLICES"]) * len(hosts)
assert os.environ["HOSTNAME"] == hosts[worker].partition(".")[0], hosts
assert os.environ["PJRT_DEVICE"] == "TPU"
if (slice_id, worker, os.environ["JOB_RESTART_ATTEMPT"]) == (1, 1, "0"):
    sys.exit(3)
place = os.environ["MEGASCALE_COORDINATOR_ADDRESS"], int(sys.argv[1])
name = f"{slice_id}/{worker}"
if name == "0/0":
    met = {name}
    with socket.create_server(("", place[1])) as server:
        while len(met) < everyone:
            with server.accept()[0] as host:
                met.add(host.recv(16).decode())
    print("met", *sorted(met), os.environ["JOB_FOLDER"], flush=True)
else:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        try:
            with socket.create_connection(place, timeout=1) as leader:
                leader.sendall(name.encode())
            sys.exit(0)
        except OSError:
            time.sleep(0.5)
    sys.exit(1)
"""
"""All hosts meet at the first one of the first slice; on the first start one of them fails."""


def _stack() -> Values:
    values = stack_values("local")
    training = unnamed(values) | {"priority": "low", "slices": {"group": "trillium", "count": 1}}
    program = {"command": ["python", "-c"], "args": [PROGRAM, "$(PORT)"], "check_slices": True, "max_restarts": 2}
    network = {"env": {"PORT": "29876"}, "ports": {"meeting": 29876}}
    slices = {"priority": "high", "slices": {"group": "trillium", "count": 2}, "grace_seconds": 60}
    meeting = SLEEPER | program | network | slices
    values["jobs"] = {"meeting": meeting, "beside": training}
    return values


@pytest.fixture(scope="module")
def outputs(chain: Chain) -> Mapping[str, Any]:
    return chain.engine_on(_stack()).up(ignore)


def test_all_hosts_of_all_slices_find_each_other_after_a_failure_that_counted(
    chain: Chain, outputs: Mapping[str, Any]
) -> None:
    status = chain.wait_for_end("meeting")
    assert status["terminalState"] == "Completed"
    assert (status["restarts"], status["restartsCountTowardsMax"]) == (1, 1)
    logs = [log.read_text() for log in (chain.site.logs / "pods").glob("*_meeting-slice-0-0-*/program*.log")]
    checks = [log.read_text() for log in (chain.site.logs / "pods").glob("*_meeting-slice-*/slice-check*.log")]
    assert len([log for log in checks if "all devices of the job compute correctly" in log]) >= 4
    folder = f"{outputs['checkpoint_bucket']}/meeting"
    assert f"met 0/0 0/1 1/0 1/1 {folder}\n" in "".join(logs)


def test_the_other_job_of_the_stack_trains_when_the_slices_are_free(chain: Chain, outputs: Mapping[str, Any]) -> None:
    assert {job["name"]: job["kind"] for job in outputs["jobs"]} == {"beside": "training", "meeting": "container"}
    assert chain.wait_for_end("beside")["terminalState"] == "Completed"
    assert chain.losses("beside")


def test_a_job_that_is_removed_goes_alone(chain: Chain, outputs: Mapping[str, Any]) -> None:
    del outputs
    values = _stack()
    del values["jobs"]["meeting"]
    operations = Operations()
    chain.engine_on(values).up(operations)
    own = ("job-meeting", "price-meeting", "queue-research.meeting", "access-meeting", "access-research_meeting")
    assert operations.changes == {("delete", name) for name in own} | {("update", "published-research")}
    assert [job["metadata"]["name"] for job in chain.objects("jobsets")] == ["beside"]

import importlib
import os
import signal
import socket
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from jax._src.clusters.cloud_tpu_cluster import GkeTpuCluster

from tests.workloads.hosts import wait_until
from workloads.spec import ExitCode
from workloads.training.failures import BadHostStays, HostMissing
from workloads.training.runtime import Deadline, HostPosition, Processes, join, require_coordinator_port


@pytest.mark.parametrize("slices", [{}, {"MEGASCALE_NUM_SLICES": "1"}])
def test_one_host_needs_no_coordinator_and_agrees_with_itself(slices: dict[str, str]) -> None:
    alone = join(HostPosition.of({"TPU_WORKER_HOSTNAMES": "host-a", "TPU_WORKER_ID": "0", **slices}), 1, Deadline())
    assert (alone.index, alone.count, alone.host, alone.leads) == (0, 1, "host-a", True)
    assert alone.share("key", lambda: "value") == "value"
    assert alone.gather("key", "value") == ["value"]


def test_sigterm_is_seen_at_the_next_step() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        alone = join(HostPosition.of({}), 1, Deadline())
        assert not alone.should_stop()
        os.kill(os.getpid(), signal.SIGTERM)
        wait_until(alone.should_stop)
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGTERM, before)


def test_a_position_is_counted_slice_by_slice() -> None:
    environment = {"TPU_WORKER_HOSTNAMES": "a,b", "MEGASCALE_NUM_SLICES": "3"}
    positions = [
        HostPosition.of({**environment, "TPU_WORKER_ID": str(worker), "MEGASCALE_SLICE_ID": str(index)})
        for index in range(3)
        for worker in range(2)
    ]
    assert [position.process for position in positions] == list(range(6))
    assert [position.host for position in positions] == ["a", "b"] * 3
    assert not any(position.alone for position in positions)


def test_where_processes_have_addresses_those_are_the_hosts_as_for_jax(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "addresses").write_text("a:8476,b:8476\n")
    in_file = {"TPU_PROCESS_ADDRESSES_PATH": str(tmp_path / "addresses"), "TPU_PROCESS_ADDRESSES": "c:8476"}
    variables = {"TPU_PROCESS_ADDRESSES": "a:8476,b:8476", "TPU_WORKER_ID": "1"}
    variables |= {"MEGASCALE_NUM_SLICES": "1", "MEGASCALE_SLICE_ID": "0"}
    for environment in (variables, variables | {"TPU_WORKER_HOSTNAMES": "localhost"}, variables | in_file):
        assert HostPosition.of(environment).hosts == ("a", "b")
        assert HostPosition.of(environment).host == "b"
        with monkeypatch.context() as process:
            for name, value in environment.items():
                process.setenv(name, value)
            assert GkeTpuCluster.get_process_id() == HostPosition.of(environment).process


LEADER = HostPosition(hosts=("host-a", "host-b"), worker=0, slice_count=1, slice=0)


def test_a_leader_whose_port_is_taken_is_a_bad_host_and_other_ports_do_not_matter() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for variables in ({"JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}, {"JAX_COORDINATOR_PORT": str(port)}):
            with pytest.raises(BadHostStays, match=f"host host-a: expected port {port} to be free") as stop:
                require_coordinator_port(LEADER, variables)
            assert stop.value.code is ExitCode.CRASH
            require_coordinator_port(replace(LEADER, worker=1), variables)
    require_coordinator_port(LEADER, {"JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"})


HOSTS = 8
_jax = importlib.import_module("jaxlib._jax")


class Client:
    """One host's connection to JAX's coordination service, which records reads and their timeouts."""

    def __init__(self, address: str, index: int):
        self._client = _jax.get_distributed_runtime_client(
            address, index, init_timeout=60, heartbeat_timeout=600, shutdown_timeout=60
        )
        self.reads: list[str] = []
        self.patience: list[float] = []

    def blocking_key_value_get(self, key: str, milliseconds: int) -> str:
        self.reads.append(key)
        self.patience.append(milliseconds / 1000)
        return self._client.blocking_key_value_get(key, milliseconds)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Generator[list[Client]]:
    """Yield the clients of HOSTS hosts, each of which has a thread of this process."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    service = _jax.get_distributed_runtime_service(address, HOSTS, heartbeat_timeout=600, shutdown_timeout=60)
    found = [Client(address, index) for index in range(HOSTS)]
    together([client.connect for client in found])
    yield found
    together([client.shutdown for client in found])
    service.shutdown()


def together[T](calls: list[Callable[[], T]]) -> list[T]:
    with ThreadPoolExecutor(len(calls)) as threads:
        return [each.result() for each in [threads.submit(call) for call in calls]]


@dataclass(frozen=True)
class Host(Processes):
    """One of HOSTS hosts, with its own client."""

    client: Any = None

    @property
    def _client(self) -> Any:
        return self.client


def host(clients: list[Client], index: int, minutes: float) -> Host:
    found = Host(index, HOSTS, f"host-{index}", client=clients[index])
    found.deadline.expect("the restore", minutes)
    return found


def test_each_host_gets_all_words_and_reads_few_of_them(clients: list[Client]) -> None:
    hosts = [host(clients, index, 10) for index in range(HOSTS)]
    words = [f"word {index}" for index in range(HOSTS)]
    for key in ("restore/1/1", "restore/1/10"):
        found = together([lambda one=one, key=key: one.gather(key, words[one.index]) for one in hosts])
        assert found == [words] * HOSTS
    reads = Counter(len(client.reads) for client in clients)
    # The leader collects them, twice.
    assert reads == {2: HOSTS - 1, 2 * HOSTS + 2: 1}


def test_a_host_waits_for_the_others_until_its_deadline(clients: list[Client]) -> None:
    hosts = [host(clients, index, 60) for index in range(HOSTS)]
    together([lambda one=one: one.gather("restore", "") for one in hosts])
    for client in clients:
        assert all(3500 < seconds <= 3600 for seconds in client.patience)


def test_a_host_that_does_not_answer_within_the_deadline_is_named_by_the_leader(clients: list[Client]) -> None:
    minutes = 0.06
    leader = host(clients, 0, minutes)
    with pytest.raises(HostMissing, match=f"process 1 of {HOSTS} did not answer host-0 .*'restore'"):
        leader.gather("restore", "")
    # The wait ends before the watchdog would end the leader for a hang, which would name no host.
    assert 0 < max(clients[0].patience) < 60 * minutes - 1

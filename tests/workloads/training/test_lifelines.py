"""Connections by which hosts notice that the process of another one has ended."""

# pyright: reportPrivateUsage=false

import socket
import struct
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Barrier
from typing import Any, cast

import pytest

from tests.workloads.hosts import wait_until
from workloads.training.lifelines import Lifelines
from workloads.training.links import CUT_AFTER_SECONDS, open_link
from workloads.training.runtime import Processes

HOSTS = 3
KEY = b"k" * 32
NOTICED_SECONDS = 10.0
"""Longest wait for what comes within milliseconds on an idle machine."""
QUIET_SECONDS = 0.2
"""Time in which nothing may come."""
DEAD = 2
"""Host whose connection ends without a word."""


@dataclass(frozen=True)
class Host(Processes):
    """One of HOSTS hosts, which share what they gather."""

    gathered: dict[int, Any] = field(default_factory=dict[int, Any])
    met: Barrier = field(default_factory=lambda: Barrier(HOSTS))

    def gather[T](self, key: str, value: T) -> list[T]:
        self.gathered[self.index] = value
        self.met.wait(10)
        return [cast(T, self.gathered[index]) for index in range(HOSTS)]


@dataclass
class Job:
    """Hosts 0 and 1 with lifelines, and the bare connection of host 2."""

    lifelines: list[Lifelines]
    dead: socket.socket
    lost: "list[SimpleQueue[tuple[str, int]]]"
    stacks: list[ExitStack]

    def leave(self, index: int, error: Exception | None = None) -> None:
        """Let a host leave in order."""
        self.stacks[index].pop_all().__exit__(type(error) if error else None, error, None)

    def loses(self, index: int) -> tuple[str, int]:
        """Return which host a host loses."""
        return self.lost[index].get(timeout=NOTICED_SECONDS)

    def loses_none(self, index: int) -> bool:
        time.sleep(QUIET_SECONDS)
        return self.lost[index].empty()


@contextmanager
def job() -> Generator[Job]:
    gathered, met = dict[int, Any](), Barrier(HOSTS)
    hosts = [Host(index, HOSTS, f"host-{index}", gathered=gathered, met=met) for index in range(HOSTS)]
    lost = [SimpleQueue[tuple[str, int]]() for _ in hosts]

    def put(index: int) -> Callable[[str, int], None]:
        return lambda *which: lost[index].put(which)

    made = [Lifelines(host, lambda: KEY, lambda: "127.0.0.1", put(host.index)) for host in hosts[:DEAD]]
    with ExitStack() as first, ExitStack() as second, ThreadPoolExecutor(HOSTS) as pool:
        stacks = [first, second]
        entered = [pool.submit(stack.enter_context, each) for stack, each in zip(stacks, made, strict=True)]
        _, address = pool.submit(hosts[DEAD].gather, "lifelines", ["host-2", ""]).result()[0]
        for each in entered:
            each.result()
        with open_link(address, KEY, DEAD) as dead:
            leader, follower = made
            wait_until(lambda: len(leader._lines) == 2 and len(follower._lines) == 1)
            yield Job(made, dead, lost, stacks)


def test_all_hosts_hear_at_once_of_a_process_that_ended() -> None:
    with job() as hosts:
        hosts.dead.close()
        assert [hosts.loses(0), hosts.loses(1)] == [("host-2", DEAD)] * 2


def test_hosts_lose_the_leader() -> None:
    with job() as hosts:
        (line,) = hosts.lifelines[1]._lines.values()
        line.connection.shutdown(socket.SHUT_RDWR)
        assert hosts.loses(1) == ("host-0", 0)
        # To the leader, this host is the lost one.
        assert hosts.loses(0) == ("host-1", 1)


@pytest.mark.parametrize(("leaves", "error", "stays"), [(1, None, 0), (0, ValueError(), 1)])
def test_a_host_that_leaves_in_order_is_not_lost(leaves: int, error: Exception | None, stays: int) -> None:
    with job() as hosts:
        hosts.leave(leaves, error)
        assert hosts.loses_none(stays)


def test_the_kernel_looks_for_a_machine_that_is_gone() -> None:
    with job() as hosts:
        for each in hosts.lifelines:
            for line in each._lines.values():
                options = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
                idle, every, count = (line.connection.getsockopt(socket.IPPROTO_TCP, option) for option in options)
                assert line.connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                assert idle + every * count <= 1.2 * CUT_AFTER_SECONDS


@dataclass(frozen=True)
class Follower(Processes):
    """A host whose leader listens at `address`."""

    address: str = ""

    def gather[T](self, key: str, value: T) -> list[T]:
        return [cast(T, ["host-0", self.address]), value]


def follow(address: str, key: Callable[[], bytes] = lambda: KEY) -> None:
    """Enter and leave the lifelines of a host that must not lose another one."""
    with Lifelines(Follower(1, 2, "host-1", address=address), key, lambda: "", lambda *_: pytest.fail("lost")):
        pass


def test_a_host_without_a_lifeline_to_the_leader_goes_on_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    def no_key() -> bytes:
        raise RuntimeError("the bucket does not answer")

    for address in ("", "127.0.0.1:1", "nonsense"):
        follow(address)
    follow("127.0.0.1:1", no_key)
    with socket.create_server(("127.0.0.1", 0)) as leader, ThreadPoolExecutor(1) as pool:
        followed = pool.submit(follow, f"127.0.0.1:{leader.getsockname()[1]}")
        leader.accept()[0].close()
        followed.result()
    _, _, keyless, closed = capsys.readouterr().out.split("host host-1 has no lifeline to the leader: ")[1:]
    assert "the bucket does not answer" in keyless
    assert "the other side closed the connection" in closed


@pytest.mark.parametrize("number", [1, 7, -1, -(2**31)])
def test_a_host_speaks_only_of_itself(number: int) -> None:
    with job() as hosts:
        hosts.dead.sendall(struct.pack("<i", number))
        hosts.dead.settimeout(NOTICED_SECONDS)
        assert hosts.dead.recv(1) == b""
        assert hosts.loses_none(0)
        (line,) = hosts.lifelines[1]._lines.values()
        line.connection.shutdown(socket.SHUT_RDWR)
        assert hosts.loses(0) == ("host-1", 1)


@pytest.mark.parametrize("number", [HOSTS, -1, 2**31 - 1])
def test_a_number_of_the_leader_that_no_host_has_ends_only_the_connection(number: int) -> None:
    with job() as hosts:
        leader, follower = hosts.lifelines
        (line,) = (line for line in [*leader._lines.values()] if line.peer == follower._processes.index)
        line.connection.sendall(struct.pack("<i", number))
        wait_until(lambda: not follower._lines)
        assert hosts.loses_none(1)
        assert follower._thread.is_alive()


def test_a_leader_without_an_address_goes_on_without_lifelines_and_one_host_needs_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def no_address() -> str:
        raise OSError("unknown host")

    class Leader(Follower):
        def gather[T](self, key: str, value: T) -> list[T]:
            return [value, value]

    for host in (Processes(0, 1, "host-0"), Leader(0, 2, "host-0")):
        with Lifelines(host, lambda: KEY, no_address, lambda *_: None):
            pass
    assert capsys.readouterr().out.count("host host-0 cannot listen for lifelines: unknown host") == 1

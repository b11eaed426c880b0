"""Connections that come to the leader, wanted and unwanted."""

import socket
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from queue import SimpleQueue

import pytest

from tests.workloads.hosts import wait_until
from workloads.training import links as module
from workloads.training.links import Links, open_link

KEY, ANOTHER = b"k" * 32, b"a" * 32
HOSTS = 4
NONCE_BYTES, GREETING_BYTES = 32, 68


class Leader:
    """A listener and the processes whose connections it took."""

    def __init__(self, address: str = "127.0.0.1", hosts: int = HOSTS):
        self.taken = SimpleQueue[int]()
        self.links = Links(address, KEY, hosts, lambda sender, _: self.taken.put(sender))

    @contextmanager
    def connected(self) -> Generator[socket.socket]:
        host, port = self.links.address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            yield connection

    def takes(self, sender: int, key: bytes = KEY) -> bool:
        """Return whether it takes a connection of a process. Otherwise it closes it."""
        try:
            open_link(self.links.address, key, sender).close()
        except ConnectionError:
            return False
        return self.taken.get(timeout=10) == sender


@pytest.fixture
def leader() -> Generator[Leader]:
    found = Leader()
    yield found
    found.links.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes the connection within ten seconds, after nothing but its nonce."""
    received = 0
    with suppress(ConnectionError):
        while read := connection.recv(4096):
            received += len(read)
    return received in (0, NONCE_BYTES)


@pytest.mark.parametrize(
    "bytes_",
    [b"GET / HTTP/1.1\r\n\r\n" * 9, b"\0" * 500, b"slices", b"[" * 100_000, b"\xff" * (4 << 20)],
    ids=["http", "zeros", "few", "brackets", "flood"],
)
def test_connections_of_strangers_are_closed_and_disturb_nothing(leader: Leader, bytes_: bytes) -> None:
    with leader.connected() as stranger:
        with suppress(ConnectionError):
            stranger.sendall(bytes_)
        if len(bytes_) < GREETING_BYTES:
            stranger.shutdown(socket.SHUT_WR)
        assert is_closed(stranger)
    assert leader.takes(3)


def test_connections_that_never_greet_are_closed(monkeypatch: pytest.MonkeyPatch, leader: Leader) -> None:
    monkeypatch.setattr(module, "_GREETING_SECONDS", 0.05)
    with leader.connected() as silent, leader.connected() as slow:
        slow.sendall(b"slices")
        assert is_closed(silent)
        assert is_closed(slow)


def test_of_many_connections_that_never_greet_the_oldest_are_closed(
    monkeypatch: pytest.MonkeyPatch, leader: Leader
) -> None:
    monkeypatch.setattr(module, "_GUESTS", 10)
    with leader.connected() as oldest, ExitStack() as stack:
        for _ in range(10 + HOSTS):
            stack.enter_context(leader.connected())
        assert is_closed(oldest)
        assert leader.takes(1)


def test_all_hosts_of_a_large_job_may_come_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GUESTS", 0)
    leader = Leader(hosts=100)
    with ThreadPoolExecutor(100) as pool:
        opened = [*pool.map(lambda sender: open_link(leader.links.address, KEY, sender), range(100))]
    assert {leader.taken.get(timeout=10) for _ in opened} == set(range(100))
    for connection in opened:
        connection.close()
    leader.links.close()


def test_links_close_while_strangers_are_connected() -> None:
    leader = Leader()
    with leader.connected() as stranger:
        time.sleep(0.02)
        leader.links.close()
        assert is_closed(stranger)


def test_who_knows_everything_but_the_key_is_refused(leader: Leader) -> None:
    assert not leader.takes(1, key=ANOTHER)
    assert not leader.takes(1, key=b"")
    assert leader.taken.empty()


@pytest.mark.parametrize("sender", [-1, HOSTS, 2**31 - 1])
def test_an_index_that_the_job_does_not_have_is_refused(leader: Leader, sender: int) -> None:
    assert not leader.takes(sender)
    assert leader.takes(HOSTS - 1)


def test_a_recorded_greeting_is_refused_and_so_is_one_for_another_index(leader: Leader) -> None:
    with socket.create_server(("127.0.0.1", 0)) as relay, leader.connected() as there, ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_link, f"127.0.0.1:{relay.getsockname()[1]}", KEY, 1)
        here, _ = relay.accept()
        here.sendall(there.recv(NONCE_BYTES))
        greeting = here.recv(GREETING_BYTES, socket.MSG_WAITALL)
        there.sendall(greeting)
        proof = there.recv(4096)
        here.sendall(proof)
        opened.result().close()
        here.close()
    assert leader.taken.get(timeout=10) == 1
    for forged in (greeting, b"\2" + greeting[1:], greeting[:-32] + proof):
        with leader.connected() as stranger:
            stranger.sendall(forged)
            assert is_closed(stranger)
    assert leader.taken.empty()


@pytest.mark.parametrize("echoes", [False, True])
def test_a_host_believes_no_listener_without_the_key(echoes: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger, ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_link, f"127.0.0.1:{stranger.getsockname()[1]}", KEY, 1)
        with stranger.accept()[0] as connection:
            connection.sendall(bytes(NONCE_BYTES))
            greeting = connection.recv(GREETING_BYTES, socket.MSG_WAITALL)
            connection.sendall(greeting[-32:] if echoes else bytes(32))
            with pytest.raises(ConnectionError, match="does not have the key of this attempt"):
                opened.result()


def test_a_host_does_not_wait_long_for_a_listener_that_speaks_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GREETING_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as stranger, ThreadPoolExecutor(1) as pool:
        opened = pool.submit(open_link, f"127.0.0.1:{stranger.getsockname()[1]}", KEY, 1)
        with stranger.accept()[0] as connection, suppress(ConnectionError):
            for _ in range(NONCE_BYTES - 1):
                connection.sendall(b"\0")
                time.sleep(0.05)
        wait_until(opened.done, 10)
        assert isinstance(opened.exception(), OSError)


def test_hosts_are_connected_over_ipv6() -> None:
    leader = Leader("::1")
    assert leader.links.address.startswith("[::1]:")
    assert leader.takes(2)
    leader.links.close()

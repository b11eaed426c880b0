"""Connections that come to the leader, wanted and unwanted."""

import socket
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from queue import SimpleQueue

import pytest

from workloads.training import links as module
from workloads.training.links import Links, open_link

GREETING_BYTES = 28


class Leader:
    """A listener and the processes whose connections it took."""

    def __init__(self, address: str = "127.0.0.1"):
        self.taken = SimpleQueue[int]()
        self.links = Links(address, "group", lambda sender, _: self.taken.put(sender))

    @contextmanager
    def connected(self) -> Generator[socket.socket]:
        host, port = self.links.address.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            yield connection

    def takes(self, sender: int, group: str = "group") -> bool:
        """Return whether it takes a connection of a process. Otherwise it closes it."""
        connection, first = open_link(self.links.address, group, sender)
        with connection:
            connection.settimeout(10)
            connection.sendall(first)
            if group == "group":
                return self.taken.get(timeout=10) == sender
            return not is_closed(connection)


@pytest.fixture
def leader() -> Generator[Leader]:
    found = Leader()
    yield found
    found.links.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes the connection within ten seconds."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize(
    "bytes_", [b"GET / HTTP/1.1\r\n\r\n" * 9, b"\0" * 500, b"slices"], ids=["http", "zeros", "few"]
)
def test_connections_of_strangers_are_closed_and_disturb_nothing(leader: Leader, bytes_: bytes) -> None:
    with leader.connected() as stranger:
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
    with leader.connected() as oldest:
        others = [leader.connected() for _ in range(10)]
        for other in others:
            other.__enter__()
        assert is_closed(oldest)
        assert leader.takes(1)
        for other in others:
            other.__exit__(None, None, None)


def test_links_close_while_strangers_are_connected() -> None:
    leader = Leader()
    with leader.connected() as stranger:
        time.sleep(0.02)
        leader.links.close()
        assert is_closed(stranger)


def test_hosts_of_another_group_are_refused(leader: Leader) -> None:
    assert not leader.takes(1, group="another")


def test_an_address_must_be_one_of_ip() -> None:
    with pytest.raises(ValueError, match="localhost"):
        Links("localhost", "group", lambda *_: None)


def test_hosts_are_connected_over_ipv6() -> None:
    leader = Leader("::1")
    assert leader.links.address.startswith("[::1]:")
    assert leader.takes(2)
    leader.links.close()

"""Connections that come to a host, wanted and unwanted."""

import socket
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import pytest

from tests.workloads.group.slices import FLOAT32, plain_sum, slices, vectors
from workloads.group import links as module
from workloads.group.exchange import Exchange
from workloads.group.frames import Frame, Kind
from workloads.group.links import Greeting, Links
from workloads.group.sums import Layout


@contextmanager
def connected(links: Links) -> Generator[socket.socket]:
    host, port = links.address.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        yield connection


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side closes the connection within ten seconds."""
    with suppress(ConnectionError):
        return connection.recv(1) == b""
    return True


@pytest.mark.parametrize(
    "bytes_", [b"GET / HTTP/1.1\r\n\r\n" * 9, b"\0" * 500, b"slices"], ids=["http", "zeros", "few"]
)
def test_connections_of_strangers_are_closed_and_disturb_nothing(bytes_: bytes) -> None:
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1) as hosts, connected(hosts.links[0]) as stranger:
        stranger.sendall(bytes_)
        if len(bytes_) < 44:
            stranger.shutdown(socket.SHUT_WR)
        assert is_closed(stranger)
        assert (hosts.sums(0, parts, (0, 1))[0] == plain_sum(parts)).all()


def test_connections_that_never_greet_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_GREETING_SECONDS", 0.05)
    with Links(0, "127.0.0.1", "group") as links, connected(links) as silent, connected(links) as slow:
        slow.sendall(b"slices")
        assert is_closed(silent)
        assert is_closed(slow)


def test_of_many_connections_that_never_greet_the_oldest_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    guests = 10
    monkeypatch.setattr(module, "_GUESTS", guests)
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1) as hosts, connected(hosts.links[0]) as oldest:
        others = [connected(hosts.links[0]) for _ in range(guests)]
        for other in others:
            other.__enter__()
        assert is_closed(oldest)
        hosts.view((0, 1))
        assert (hosts.sums(0, parts, (0, 1))[0] == plain_sum(parts)).all()
        for other in others:
            other.__exit__(None, None, None)


def test_links_close_while_strangers_are_connected() -> None:
    links = Links(0, "127.0.0.1", "group")
    with connected(links) as stranger:
        time.sleep(0.02)
        links.close()
        assert is_closed(stranger)


@pytest.mark.parametrize(
    "greeting",
    [Greeting(0, 2, 9, 0, 2), Greeting(0, 2, 0, 3, 2), Greeting(0, 2, 0, 0, 4), Greeting(0, 7, 0, 0, 2)],
    ids=["to another slice", "a stream too many", "another number of streams", "a slice that is not in the view"],
)
def test_greetings_that_do_not_fit_are_refused(greeting: Greeting) -> None:
    with slices(0, 1) as hosts, Links(2, "127.0.0.1", "group", streams=2) as other:
        assert _refused(hosts.links[0], other, greeting)


def test_hosts_of_another_group_are_refused() -> None:
    with slices(0, 1) as hosts, Links(1, "127.0.0.1", "another", streams=2) as other:
        assert _refused(hosts.links[0], other, Greeting(0, 1, 0, 0, 2))


def test_hosts_that_are_still_in_an_earlier_view_are_refused() -> None:
    with slices(0, 1) as hosts:
        hosts.view((0, 1))
        assert _refused(hosts.links[0], hosts.links[1], Greeting(0, 1, 0, 0, 2))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=str)
def test_hosts_that_are_first_in_a_view_wait_for_the_others(order: Sequence[int]) -> None:
    parts = vectors(1000, FLOAT32, 3)
    with slices(0, 1, 2) as hosts:
        hosts.view(order, pause=0.03)
        assert not any(exchange.lost for exchange in hosts.exchanges.values())
        assert (hosts.sums(0, parts, (0, 1, 2))[0] == plain_sum(parts)).all()


def test_a_view_needs_a_higher_number_than_those_before() -> None:
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1) as hosts:
        with pytest.raises(ValueError, match="view 0 comes after view 0"):
            Exchange(hosts.links[0], {name: links.address for name, links in hosts.links.items()}, 0)
        assert (hosts.sums(0, parts, (0, 1))[0] == plain_sum(parts)).all()


def test_frames_of_an_earlier_step_are_dropped() -> None:
    with slices(0, streams=1) as hosts, Links(1, "127.0.0.1", "group", streams=1) as other:
        hosts.view((0,), through={1: other.address})
        transport, greeting = other.connect(hosts.links[0].address, Greeting(1, 1, 0, 0, 1))
        with transport:
            transport.setblocking(True)
            transport.sendall(greeting)
            layout = Layout(1, FLOAT32, ((0, 0), (1, 1)), (0, 1), 1)
            parts = [np.zeros(1, np.float32)] * 2

            def send(step: int, number: float) -> None:
                content = np.array([number], np.float32).view(np.uint8)
                transport.sendall(Frame(Kind.SUM, step, layout.checksum, 0, 0, 4).head(content) + content.tobytes())

            send(5, 1.0)
            assert hosts.sum(0, 5, parts, (0, 1))[0] == [1.0]
            for step, number in (5, 2.0), (4, 3.0), (6, 4.0):
                send(step, number)
            assert hosts.sum(0, 6, parts, (0, 1))[0] == [4.0]


def test_an_address_must_be_one_of_ip() -> None:
    with pytest.raises(ValueError, match="localhost"):
        Links(0, "localhost", "group")


def test_slices_are_connected_over_ipv6() -> None:
    parts = vectors(1000, FLOAT32, 2)
    with slices(0, 1, address="::1") as hosts:
        assert hosts.links[0].address.startswith("[::1]:")
        assert (hosts.sums(0, parts, (0, 1))[0] == plain_sum(parts)).all()


def _refused(links: Links, other: Links, greeting: Greeting) -> bool:
    transport, first = other.connect(links.address, greeting)
    with transport:
        transport.settimeout(10)
        transport.sendall(first)
        return is_closed(transport)

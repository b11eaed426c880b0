"""Listens for the hosts with the same index in other slices, and opens connections to them.

Connections belong to one view of one group. The side that opens a connection begins it with a greeting, which names
both. Connections with another greeting, or with none, are closed: port scans, hosts of other jobs, and hosts that still
are in an earlier view. A greeting does not protect against forgery.
"""

import ipaddress
import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from threading import Lock, Thread
from typing import Self

STREAMS = 4
"""Number of data connections to each peer, each with a thread. One TCP connection reaches about 10 Gb/s between
machines in one zone (https://cloud.google.com/compute/docs/network-bandwidth)."""

_MAGIC = b"slices\x00\x01"
"""The last byte is the version of the greeting and of everything that follows it."""
_GREETING = struct.Struct("<8s16sqiiHH")
_GREETING_SECONDS = 30.0
"""Time in which a connection must be greeted."""
_GUESTS = 64
"""Number of connections that may be without a greeting. More close the oldest."""

CUT_AFTER_SECONDS = 10
_PROBE_SECONDS = 2
"""The kernel probes a watch connection this often, and ends it if no answer comes for CUT_AFTER_SECONDS. A control
plane notices a dead host earlier. This is for a cut that separates only two slices."""


@dataclass(frozen=True)
class Greeting:
    """First bytes of a connection: where it belongs."""

    view: int
    sender: int
    """Slice that opened the connection."""
    receiver: int
    stream: int
    """Index of the data connection; `streams` for the watch connection, which carries nothing else."""
    streams: int


type Take = Callable[[Greeting, socket.socket], None]


@dataclass
class _Guest:
    """A connection whose greeting has not come yet."""

    connection: socket.socket
    due: float
    """Time by `time.monotonic()` at which it ends."""
    received: bytearray = field(default_factory=bytearray)


class Links:
    """Listener of this host, and connections that other hosts have opened to it."""

    def __init__(
        self,
        slice_: int,
        address: str,
        group: str,
        streams: int = STREAMS,
        cut_after_seconds: int = CUT_AFTER_SECONDS,
    ):
        """Listen on a free port.

        Args:
            slice_: this host's slice.
            address: IP address of this host on the network between the slices.
            group: name of the group of slices, the same on all of its hosts. No other group may use it.
            streams: number of data connections to each peer, the same on all hosts.
            cut_after_seconds: time without an answer after which the kernel ends a watch connection.
        """
        self.slice, self.streams = slice_, streams
        self._group, self._cut_after = group, cut_after_seconds
        self._lock = Lock()
        self._view, self._take = -1, _refuse
        self._waiting = list[tuple[Greeting, socket.socket]]()
        self._listener = socket.socket(_family(address), socket.SOCK_STREAM)
        self._listener.bind((address, 0))
        self._listener.listen(128)
        self._listener.setblocking(False)
        self._wake = os.eventfd(0)
        self._thread = Thread(target=self._listen, name="links", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """Address that other hosts connect to, `host:port`."""
        host, port = self._listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def claim(self, view: int, take: Take) -> None:
        """Give `take` every connection of a view, now and later, and refuse those of earlier views.

        `take` may run in another thread. It must not block.
        """
        with self._lock:
            if view <= self._view:
                raise ValueError(f"view {view} comes after view {self._view}, but views only go up")
            self._view, self._take = view, take
            waiting, self._waiting = self._waiting, []
            for greeting, connection in waiting:
                self._sort(greeting, connection)

    def release(self, view: int) -> None:
        """Refuse further connections of a view."""
        with self._lock:
            if view == self._view:
                self._take = _refuse

    def connect(self, address: str, greeting: Greeting) -> tuple[socket.socket, bytes]:
        """Begin to open a connection, and return it with the bytes to send first.

        Raises:
            OSError: the address cannot be reached.
        """
        return open_link(self._group, address, greeting, self._cut_after)

    def close(self) -> None:
        """End the listener, and close all connections that no view has taken."""
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._listener.close()
        os.close(self._wake)
        with self._lock:
            self._take = _refuse
            for _, connection in self._waiting:
                connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            guests = dict[int, _Guest]()
            while True:
                due = min((guest.due for guest in guests.values()), default=None)
                ready = selector.select(None if due is None else max(0.0, due - time.monotonic()))
                for key, _ in ready:
                    if guest := guests.get(key.fd):
                        self._read(guest)
                    elif key.fd == self._wake:
                        for guest in guests.values():
                            guest.connection.close()
                        return
                    elif guest := self._accept():
                        guests[guest.connection.fileno()] = guest
                        selector.register(guest.connection, selectors.EVENT_READ)
                for guest in [*guests.values()][:-_GUESTS]:
                    # Its greeting may have come since.
                    self._read(guest)
                    guest.due = 0.0
                for descriptor, guest in [*guests.items()]:
                    if guest.due <= time.monotonic():
                        selector.unregister(descriptor)
                        del guests[descriptor]
                        self._end(guest)

    def _accept(self) -> _Guest | None:
        # A guest may be gone before it is accepted.
        with suppress(OSError):
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            return _Guest(connection, time.monotonic() + _GREETING_SECONDS)
        return None

    def _read(self, guest: _Guest) -> None:
        """Read a part of a greeting. If no more is to come, the guest is due."""
        try:
            read = guest.connection.recv(_GREETING.size - len(guest.received))
        except BlockingIOError:
            return
        except OSError:
            read = b""
        guest.received += read
        if not read or len(guest.received) == _GREETING.size:
            guest.due = 0.0

    def _end(self, guest: _Guest) -> None:
        """Take a guest's connection if it has greeted, and close it otherwise."""
        if greeting := self._parse(guest.received):
            _prepare(guest.connection, greeting, self._cut_after)
            with self._lock:
                self._sort(greeting, guest.connection)
        else:
            guest.connection.close()

    def _sort(self, greeting: Greeting, connection: socket.socket) -> None:
        """Give a connection to the current view, let it wait for a later one, or close it."""
        if greeting.view > self._view:
            self._waiting.append((greeting, connection))
        elif greeting.view == self._view:
            self._take(greeting, connection)
        else:
            connection.close()

    def _parse(self, received: bytearray) -> Greeting | None:
        """Return the greeting if it is one of this group to this slice, and else `None`."""
        if len(received) < _GREETING.size:
            return None
        magic, token, *values = _GREETING.unpack(received)
        greeting = Greeting(*values)
        fits = greeting.receiver == self.slice and greeting.stream <= greeting.streams == self.streams
        return greeting if fits and (magic, token) == (_MAGIC, _token(self._group)) else None


def open_link(group: str, address: str, greeting: Greeting, cut_after_seconds: int) -> tuple[socket.socket, bytes]:
    """Begin to open a connection to the `Links` of a host, and return it with the bytes to send first.

    The kernel ends it if it does not open within `cut_after_seconds`, and a watch connection later if no answer comes
    for as long.

    Raises:
        OSError: the address cannot be reached.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    connection = socket.socket(_family(host), socket.SOCK_STREAM)
    _prepare(connection, greeting, cut_after_seconds)
    # Without it, the kernel tries for two minutes. It is cleared once the connection is open.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * cut_after_seconds)
    try:
        with suppress(BlockingIOError):
            connection.connect((host, int(port)))
    except OSError:
        connection.close()
        raise
    ends = greeting.sender, greeting.receiver
    return connection, _GREETING.pack(_MAGIC, _token(group), greeting.view, *ends, greeting.stream, greeting.streams)


def _token(group: str) -> bytes:
    return blake2b(group.encode(), digest_size=16).digest()


def _prepare(connection: socket.socket, greeting: Greeting, cut_after_seconds: int) -> None:
    """Set the options of a connection.

    The sizes of its buffers are left to the kernel. An explicit size turns its own sizing off and is limited to
    `net.core.*mem_max`, which usually is much less than what the kernel would use.
    """
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if greeting.stream == greeting.streams:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, cut_after_seconds // _PROBE_SECONDS)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET


def _refuse(_: Greeting, connection: socket.socket) -> None:
    connection.close()

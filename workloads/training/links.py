"""Listens on the leader for the connections of `lifelines`, and opens them on the other hosts.

The side that opens a connection begins it with a greeting. Connections with another greeting, or with none, are closed:
port scans and hosts of other jobs. A greeting does not protect against forgery.
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
from threading import Thread

_MAGIC = b"slices\x00\x02"
"""The last byte is the version of the greeting and of everything that follows it."""
_GREETING = struct.Struct("<8s16si")
_GREETING_SECONDS = 30.0
"""Time in which a connection must be greeted."""
_GUESTS = 64
"""Number of connections that may be without a greeting. More close the oldest."""

CUT_AFTER_SECONDS = 20
"""Time without an answer of the kernel of another machine after which the kernel ends a connection."""
_PROBE_SECONDS = 2
"""The kernel probes a connection this often, and ends it if no answer comes for CUT_AFTER_SECONDS."""


type Take = Callable[[int, socket.socket], None]
"""Called with the index of the process that opened a connection, and the connection."""


@dataclass
class _Guest:
    """A connection whose greeting has not come yet."""

    connection: socket.socket
    due: float
    """Time by `time.monotonic()` at which it ends."""
    received: bytearray = field(default_factory=bytearray)


class Links:
    """Listener of this host for connections that other hosts open."""

    def __init__(self, address: str, group: str, take: Take):
        """Listen on a free port.

        Args:
            address: IP address of this host on the network between the hosts.
            group: name of the group of hosts, the same on all of them. No other group may use it.
            take: called from another thread with each connection of the group. It must not block.
        """
        self._group, self._take = group, take
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

    def close(self) -> None:
        """End the listener, and close all connections that were not taken."""
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._listener.close()
        os.close(self._wake)

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
        sender = self._sender(guest.received)
        if sender is None:
            guest.connection.close()
        else:
            _prepare(guest.connection)
            self._take(sender, guest.connection)

    def _sender(self, received: bytearray) -> int | None:
        """Return the process that sent a greeting of this group, and else `None`."""
        if len(received) < _GREETING.size:
            return None
        magic, token, sender = _GREETING.unpack(received)
        return sender if (magic, token) == (_MAGIC, _token(self._group)) else None


def open_link(address: str, group: str, sender: int) -> tuple[socket.socket, bytes]:
    """Begin to open a connection from process `sender` to the `Links` of a host, and return it with its greeting.

    The kernel ends it if it does not open within CUT_AFTER_SECONDS, and later if no answer comes for as long.

    Raises:
        OSError: the address cannot be reached.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    connection = socket.socket(_family(host), socket.SOCK_STREAM)
    _prepare(connection)
    # Without it, the kernel tries for two minutes.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * CUT_AFTER_SECONDS)
    try:
        with suppress(BlockingIOError):
            connection.connect((host, int(port)))
    except OSError:
        connection.close()
        raise
    return connection, _GREETING.pack(_MAGIC, _token(group), sender)


def _token(group: str) -> bytes:
    return blake2b(group.encode(), digest_size=16).digest()


def _prepare(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CUT_AFTER_SECONDS // _PROBE_SECONDS)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET

"""Listens on the leader for the connections of `lifelines`, and opens them on the other hosts.

Before either side believes anything, both prove that they have the key of the attempt (`multislice_run.worlds`):

    listener    nonce
    host        its index, another nonce, HMAC over both nonces and the index
    listener    HMAC over the same

Each nonce is used once, so a recorded proof is worthless. Connections without a proof are closed: port scans, hosts of
other jobs, other pods. What follows on a connection is neither signed nor encrypted.
"""

import hmac
import ipaddress
import os
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread

_NONCE_BYTES, _PROOF_BYTES = 32, 32
_GREETING = struct.Struct(f"<i{_NONCE_BYTES}s{_PROOF_BYTES}s")
_HOST, _LISTENER = b"lifelines 3 host", b"lifelines 3 listener"
"""What a proof is made for. The number is the version of the greeting and of everything that follows it."""
_GREETING_SECONDS = 30.0
"""Time in which a connection must be greeted."""
_GUESTS = 64
"""Number of connections without a greeting that may be there besides those of the job. More close the oldest."""

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
    nonce: bytes
    due: float
    """Time by `time.monotonic()` at which it ends."""
    received: bytearray = field(default_factory=bytearray)


class Links:
    """Listener of this host for connections that other hosts open."""

    def __init__(self, address: str, key: bytes, hosts: int, take: Take):
        """Listen on a free port.

        Args:
            address: IP address of this host on the network between the hosts.
            key: key of the attempt, which only its hosts have.
            hosts: number of hosts. Others have no index.
            take: called from another thread with each connection of a host. It must not block.
        """
        self._key, self._hosts, self._take = key, hosts, take
        self._listener = socket.socket(_family(address), socket.SOCK_STREAM)
        self._listener.bind((address, 0))
        # All hosts may come at once, and the kernel makes those wait for seconds that find no room.
        self._listener.listen(hosts + _GUESTS)
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
                for guest in [*guests.values()][: -self._hosts - _GUESTS]:
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
            guest = _Guest(connection, secrets.token_bytes(_NONCE_BYTES), time.monotonic() + _GREETING_SECONDS)
            connection.send(guest.nonce)
            return guest
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
        """Take a guest's connection if its greeting proves that it is a host's, and close it otherwise."""
        with suppress(OSError):
            if len(guest.received) == _GREETING.size:
                sender, nonce, proof = _GREETING.unpack(guest.received)
                nonces = guest.nonce + nonce
                is_proven = hmac.compare_digest(proof, _prove(self._key, _HOST, sender, nonces))
                if is_proven and sender in range(self._hosts):
                    _prepare(guest.connection)
                    guest.connection.send(_prove(self._key, _LISTENER, sender, nonces))
                    self._take(sender, guest.connection)
                    return
        guest.connection.close()


def open_link(address: str, key: bytes, sender: int) -> socket.socket:
    """Open a connection from process `sender` to the `Links` of a host.

    The kernel ends it if no answer comes for CUT_AFTER_SECONDS.

    Raises:
        OSError: the address cannot be reached, or the other side does not have the key.
    """
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    due = time.monotonic() + _GREETING_SECONDS
    connection = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        _prepare(connection)
        # Without it, the kernel tries for two minutes.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * CUT_AFTER_SECONDS)
        connection.settimeout(_GREETING_SECONDS)
        connection.connect((host, int(port)))
        own = secrets.token_bytes(_NONCE_BYTES)
        nonces = _receive(connection, _NONCE_BYTES, due) + own
        connection.sendall(_GREETING.pack(sender, own, _prove(key, _HOST, sender, nonces)))
        proof = _receive(connection, _PROOF_BYTES, due)
        if not hmac.compare_digest(proof, _prove(key, _LISTENER, sender, nonces)):
            raise ConnectionError(f"{address} does not have the key of this attempt")
        connection.setblocking(False)
    except BaseException:
        connection.close()
        raise
    return connection


def _receive(connection: socket.socket, size: int, due: float) -> bytes:
    received = b""
    while len(received) < size:
        # A time limit of 0 would mean not to wait.
        connection.settimeout(max(0.001, due - time.monotonic()))
        part = connection.recv(size - len(received))
        if not part:
            raise ConnectionError("the other side closed the connection")
        received += part
    return received


def _prove(key: bytes, purpose: bytes, sender: int, nonces: bytes) -> bytes:
    return hmac.digest(key, purpose + struct.pack("<i", sender) + nonces, "sha256")


def _prepare(connection: socket.socket) -> None:
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, CUT_AFTER_SECONDS // _PROBE_SECONDS)


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET

"""Notices within milliseconds that another host's process has ended, and within seconds that its machine is gone.

Every host keeps a connection to the leader, its lifeline, which is silent while no host is lost. The kernel ends it
with the process, however that ends, and if the other machine does not answer the kernel's probes for
`links.CUT_AFTER_SECONDS`. A process that is only busy or stopped keeps its lifeline, because the kernel answers for it.
`watchdog` finds those.

JAX's own heartbeat would notice a lost host after half of its time limit (`runtime`). Until then, the hosts would
wait in a collective that cannot end, and not even SIGTERM would end them.
"""

import os
import select
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Self

from workloads.training.links import Links, open_link
from workloads.training.runtime import Processes

_LEADER = 0
_NUMBER = struct.Struct("<i")
"""The only message: the index of a process. A process that sends its own leaves in order, and any other is lost."""


@dataclass
class _Lifeline:
    """A connection to the process `peer`."""

    peer: int
    connection: socket.socket
    received: bytes = b""


class Lifelines:
    """The lifelines of one host, as a context manager. The leader has one to each other host."""

    def __init__(
        self,
        processes: Processes,
        key: Callable[[], bytes],
        address: Callable[[], str],
        lost: Callable[[str, int], None],
    ):
        """Only several processes call `key`, and only their leader calls `address`.

        Args:
            key: returns the key of the attempt.
            address: returns this host's IP address for the others.
            lost: called from another thread with the name and the index of a host that is gone.
        """
        self._processes, self._key, self._address, self._lost = processes, key, address, lost
        self._hosts: list[str] = []
        self._lines = dict[int, _Lifeline]()
        """By their descriptors."""
        self._new = SimpleQueue[_Lifeline | None]()
        """Lifelines to watch. None ends the thread."""
        self._wake = os.eventfd(0)
        self._links: Links | None = None
        self._thread = Thread(target=self._watch, name="lifelines", daemon=True)

    def __enter__(self) -> Self:
        if self._processes.count > 1:
            self._meet()
            self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Leave in order, whatever the error is, because the others hear of it in another way."""
        if self._processes.count > 1:
            self._add(None)
            self._thread.join()
            if self._links:
                self._links.close()
        os.close(self._wake)

    def _meet(self) -> None:
        """Listen on the leader, and connect to it on every other host."""
        processes = self._processes
        if processes.leads:
            self._links = self._listen()
        own = [processes.host, self._links.address if self._links else ""]
        all_ = processes.gather("lifelines", own)
        self._hosts = [host for host, _ in all_]
        _, at = all_[_LEADER]
        if at and not processes.leads:
            self._connect(at)

    def _listen(self) -> Links | None:
        try:
            return Links(self._address(), self._key(), self._processes.count, self._take)
        except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
            # Other ways to notice a lost host are left.
            print(f"host {self._processes.host} cannot listen for lifelines: {error}", flush=True)
            return None

    def _connect(self, address: str) -> None:
        try:
            self._take(_LEADER, open_link(address, self._key(), self._processes.index))
        except Exception as error:  # noqa: BLE001 - the same
            print(f"host {self._processes.host} has no lifeline to the leader: {error}", flush=True)

    def _take(self, peer: int, connection: socket.socket) -> None:
        self._add(_Lifeline(peer, connection))

    def _add(self, line: _Lifeline | None) -> None:
        self._new.put(line)
        os.eventfd_write(self._wake, 1)

    def _watch(self) -> None:
        with select.epoll() as events:
            events.register(self._wake, select.EPOLLIN)
            while True:
                for descriptor, _ in events.poll():
                    if descriptor != self._wake:
                        if not self._keeps(self._lines[descriptor]):
                            events.unregister(descriptor)
                            self._lines.pop(descriptor).connection.close()
                        continue
                    os.eventfd_read(self._wake)
                    while not self._new.empty():
                        line = self._new.get()
                        if line is None:
                            self._leave()
                            return
                        self._lines[line.connection.fileno()] = line
                        events.register(line.connection, select.EPOLLIN)

    def _keeps(self, line: _Lifeline) -> bool:
        """Read what came, and return whether to keep the lifeline."""
        try:
            data = line.connection.recv(_NUMBER.size - len(line.received))
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self._lose(line.peer)
            return False
        line.received += data
        if len(line.received) < _NUMBER.size:
            return True
        (number,) = _NUMBER.unpack(line.received)
        # Only the leader speaks of others.
        if number != line.peer and not self._processes.leads and number in range(self._processes.count):
            self._lose(number)
        return False

    def _lose(self, index: int) -> None:
        # The others wait in a collective with this host, which is about to end too.
        if self._processes.leads:
            self._send(index)
        self._lost(self._hosts[index], index)

    def _leave(self) -> None:
        self._send(self._processes.index)
        for line in self._lines.values():
            line.connection.close()

    def _send(self, index: int) -> None:
        for line in self._lines.values():
            with suppress(OSError):
                line.connection.send(_NUMBER.pack(index))

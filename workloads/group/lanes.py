"""Moves the frames of tasks between this host and its peers, in a few threads that share nothing.

A task is a sum of vectors or a transfer of arrays. Each lane is a thread with one connection to every peer, and does
its own share of the blocks of each task. What arrives for a later task waits in its connection.
"""

import os
import select
import socket
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Protocol

import numpy as np

from workloads.group.connection import Connection, Receiving
from workloads.group.frames import Aborted, Damaged, Disagreement, Frame, Frames, Kind, intact


class Task(Protocol):
    """The share of a lane in a task. Only the lane's thread calls it."""

    @property
    def sums(self) -> bool:
        """Return whether this is a sum, and not a transfer."""
        ...

    @property
    def number(self) -> int:
        """Return the step of a sum, or the number of a transfer."""
        ...

    @property
    def layout(self) -> int:
        """Return the checksum of everything that the hosts of the task must agree on."""
        ...

    def begin(self) -> Iterable[tuple[int, Frames]]:
        """Return the first frames to send, each with their peer."""
        ...

    def place(self, peer: int, frame: Frame) -> np.ndarray:
        """Return the memory for the content of a frame, uint8 [length].

        Raises:
            Disagreement: the frame cannot belong to the task.
        """
        ...

    def arrived(self, peer: int, frame: Frame) -> Iterable[tuple[int, Frames]]:
        """Take the content that is now in the memory, and return further frames to send."""
        ...

    def awaits(self, peer: int) -> bool:
        """Return whether frames of the peer are missing."""
        ...


@dataclass
class LaneTraffic:
    """What a lane did for a task."""

    sent_bytes: int = 0
    received_bytes: int = 0
    first_frames: dict[int, float] = field(default_factory=dict[int, float])
    """Time by `time.monotonic()` at which the first frame of each peer came."""


class Reports(Protocol):
    """What lanes report, from their own threads."""

    def done(self, traffic: LaneTraffic) -> None:
        """A lane has done its share of the task."""
        ...

    def failed(self, error: Exception) -> None:
        """A lane cannot do its share of the task."""
        ...

    def ended(self, peer: int) -> None:
        """A connection to a peer has ended, because its process is gone or the network is cut."""
        ...


class Lane:
    """A thread that does its share of each task. All methods return at once, except `join`."""

    def __init__(self, name: str, peers: Collection[int], reports: Reports):
        self._others, self._reports = peers, reports
        self._mail = SimpleQueue[Callable[[], None]]()
        self._wake = os.eventfd(0)
        self._epoll = select.epoll()
        self._epoll.register(self._wake, select.EPOLLIN)
        self._all = dict[int, Connection]()
        """Open connections by their descriptors."""
        self._peers = dict[int, Connection]()
        """Open connections by their peers, without watch connections."""
        self._early = dict[int, list[Frames]]()
        """Frames for peers whose connection has not come yet."""
        self._task: Task | None = None
        self._last_sum = -1
        self._traffic = LaneTraffic()
        self._open = True
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def add(self, peer: int, transport: socket.socket, greeting: bytes = b"", watch: bool = False) -> None:
        """Use a connection to a peer; `greeting` is sent first."""
        self._post(lambda: self._add(Connection(peer, transport, greeting, watch)))

    def begin(self, task: Task) -> None:
        """Begin a task. The one before it must be done."""
        self._post(lambda: self._begin(task))

    def end(self) -> None:
        """Close all connections soon."""
        self._post(self._end)

    def join(self) -> None:
        """Wait until all connections are closed."""
        self._thread.join()

    def free(self) -> None:
        """Free what other lanes may use until all have ended."""
        self._epoll.close()
        os.close(self._wake)

    def _post(self, deed: Callable[[], None]) -> None:
        self._mail.put(deed)
        os.eventfd_write(self._wake, 1)

    def _run(self) -> None:
        while self._open:
            try:
                self._turn()
            except Exception as error:  # noqa: BLE001 - the caller of the task raises it
                self._fail(error)
        for connection in self._all.values():
            connection.close()

    def _turn(self) -> None:
        # If a deed raises an error, the next turn does the rest of them before it waits.
        while not self._mail.empty():
            self._mail.get()()
        if self._task and not any(self._waits_for(self._task, peer) for peer in self._others):
            self._finish(self._task)
        if not self._open:
            return
        for descriptor, events in self._epoll.poll():
            if descriptor == self._wake:
                os.eventfd_read(self._wake)
            elif connection := self._all.get(descriptor):
                self._serve(connection, events)

    def _waits_for(self, task: Task, peer: int) -> bool:
        connection = self._peers.get(peer)
        return task.awaits(peer) or peer in self._early or (connection is not None and connection.sends)

    def _finish(self, task: Task) -> None:
        traffic, self._traffic = self._traffic, LaneTraffic()
        self._task = None
        if task.sums:
            self._last_sum = task.number
        self._reports.done(traffic)

    def _fail(self, error: Exception) -> None:
        self._task = None
        self._reports.failed(error)

    def _end(self) -> None:
        self._open = False

    def _add(self, connection: Connection) -> None:
        if not connection.watch:
            self._peers[connection.peer] = connection
            connection.queue.extend(self._early.pop(connection.peer, ()))
        self._all[connection.descriptor] = connection
        self._epoll.register(connection.descriptor, connection.events)

    def _drop(self, connection: Connection, error: OSError) -> None:
        """Close a connection that has ended. If the task still needs it, the task has failed."""
        peer = connection.peer
        self._epoll.unregister(connection.descriptor)
        connection.close()
        del self._all[connection.descriptor]
        self._reports.ended(peer)
        if not connection.watch:
            del self._peers[peer]
            if self._task and (connection.sends or self._task.awaits(peer)):
                self._fail(Aborted(f"the connection to slice {peer} has ended: {error}", frozenset({peer})))

    def _begin(self, task: Task) -> None:
        self._task = task
        for peer, frames in task.begin():
            self._send(peer, frames)
        for connection in self._peers.values():
            if connection.receiving is Receiving.LATER:
                self._sort(connection)
            self._epoll.modify(connection.descriptor, connection.events)

    def _send(self, peer: int, frames: Frames) -> None:
        if connection := self._peers.get(peer):
            connection.queue.append(frames)
        else:
            self._early.setdefault(peer, []).append(frames)

    def _serve(self, connection: Connection, events: int) -> None:
        before = connection.events
        try:
            if events & select.EPOLLOUT:
                self._traffic.sent_bytes += connection.send()
            if connection.receiving is not Receiving.LATER:
                if events & ~select.EPOLLOUT:
                    self._receive(connection)
            elif events & (select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR):
                raise ConnectionResetError("the peer closed the connection")
        except OSError as error:
            self._drop(connection, error)
        else:
            if connection.events != before:
                self._epoll.modify(connection.descriptor, connection.events)

    def _receive(self, connection: Connection) -> None:
        """Receive the rest of a head and of a content, as far as they have come."""
        while True:
            count, full = connection.receive()
            self._traffic.received_bytes += count
            if not full:
                return
            if connection.receiving is not Receiving.HEAD:
                self._deliver(connection)
                return
            if not self._sort(connection):
                return

    def _sort(self, connection: Connection) -> bool:
        """Find the task of the frame whose head has come, and return whether its content is read now."""
        frame = connection.frame = connection.frame or Frame.parse(connection.head)
        if not frame:
            raise Damaged(f"the head of a frame from slice {connection.peer} arrived changed")
        sums, task = frame.kind is not Kind.ARRAY, self._task
        if task and (task.sums, task.number) == (sums, frame.task):
            if frame.layout != task.layout:
                raise Disagreement(f"slice {connection.peer} does another task than this host: {frame}")
            self._traffic.first_frames.setdefault(connection.peer, time.monotonic())
            connection.expect_content(task.place(connection.peer, frame), Receiving.CONTENT)
        elif sums and frame.task <= self._last_sum:
            connection.expect_content(np.empty(frame.length, np.uint8), Receiving.STALE)
        else:
            connection.receiving = Receiving.LATER
            return False
        return True

    def _deliver(self, connection: Connection) -> None:
        frame, stale = connection.frame, connection.receiving is Receiving.STALE
        assert frame
        if not intact(connection.head, connection.content):
            raise Damaged(f"the content of a frame from slice {connection.peer} arrived changed: {frame}")
        connection.expect_head()
        if not stale and self._task:
            for peer, frames in self._task.arrived(connection.peer, frame):
                self._send(peer, frames)
                if to := self._peers.get(peer):
                    self._epoll.modify(to.descriptor, to.events)

"""One TCP connection to a peer that never blocks, with the frame that it sends and the frame that it receives."""

import select
import socket
from collections import deque
from enum import Enum

import numpy as np

from workloads.group.frames import HEAD_BYTES, Frame, Frames


class Receiving(Enum):
    """What the bytes are that a connection receives next."""

    HEAD = "a head"
    CONTENT = "the content of a frame of the current task"
    STALE = "the content of a frame of an earlier task, which is dropped"
    LATER = "the content of a frame of a later task, which waits in the connection"


class Connection:
    """Connection of a lane to a peer."""

    def __init__(self, peer: int, transport: socket.socket, greeting: bytes, watch: bool):
        """`greeting` is sent first. A `watch` connection carries nothing else, and only its end matters."""
        self.peer, self.transport, self.watch = peer, transport, watch
        self.descriptor = transport.fileno()
        self.queue = deque[Frames]()
        self._sending = [memoryview(greeting)] if greeting else []
        self._opening = bool(greeting)
        self.head = bytearray(HEAD_BYTES)
        self.frame: Frame | None = None
        self.content = np.empty(0, np.uint8)
        self.receiving = Receiving.HEAD
        self._missing = memoryview(self.head)

    @property
    def sends(self) -> bool:
        """Return whether frames wait to be sent."""
        return bool(self._sending or self.queue)

    @property
    def events(self) -> int:
        """Events of `epoll` to wait for. A connection that is not read now still reports its end."""
        reading = select.EPOLLRDHUP if self.receiving is Receiving.LATER else select.EPOLLIN
        return reading | (select.EPOLLOUT if self.sends else 0)

    def expect_head(self) -> None:
        self.frame, self.receiving, self._missing = None, Receiving.HEAD, memoryview(self.head)

    def expect_content(self, content: np.ndarray, receiving: Receiving) -> None:
        self.content, self.receiving, self._missing = content, receiving, memoryview(content)

    def receive(self) -> tuple[int, bool]:
        """Return the number of bytes that came, and whether nothing is missing of the head or content.

        Raises:
            OSError: the connection has ended.
        """
        try:
            count = self.transport.recv_into(self._missing)
        except BlockingIOError:
            return 0, False
        if not count:
            raise ConnectionResetError("the peer closed the connection")
        self._missing = self._missing[count:]
        return count, not self._missing

    def send(self) -> int:
        """Send what the kernel takes of one frame, and return the number of bytes.

        Raises:
            OSError: the connection has ended.
        """
        while not self._sending and self.queue:
            if frame := next(self.queue[0], None):
                self._sending = [memoryview(frame[0]), memoryview(frame[1])]
            else:
                self.queue.popleft()
        if not self._sending:
            return 0
        try:
            count = self.transport.sendmsg(self._sending)
        except BlockingIOError:
            return 0
        if self._opening:
            self._opened()
        left = count
        while self._sending and left >= len(self._sending[0]):
            left -= len(self._sending.pop(0))
        if left:
            self._sending[0] = self._sending[0][left:]
        return count

    def close(self) -> None:
        self.transport.close()

    def _opened(self) -> None:
        # The limit was for opening it. On an open connection it would also count the time that a peer takes to begin
        # its next task while our frames wait. A watch connection has nothing to send that could wait.
        self._opening = False
        if not self.watch:
            self.transport.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)

"""A command beside a container's own program, for a client on a WebSocket: what `kubectl exec` starts.

Owns pipes, terminal and channels. One thread reads and writes the connection, since a TLS connection serves one at a
time; another one feeds the command, which may be slow to read. The command ends with its connection.
"""

import errno
import fcntl
import json
import os
import pty
import queue
import signal
import struct
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Self

import websocket

from infra.remote_command import EXIT_CODE, SUCCESS, Channel
from sandbox.node_agent.pod_process import PodProcess, StartError, Streams

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")

IDLE_SECONDS = 4 * 3600.0
"""Kubelet's own patience with a connection that says nothing."""

_BLOCK_BYTES = 1 << 15


@dataclass(frozen=True)
class Wish:
    """What a client asks for."""

    command: Sequence[str]
    stdin: bool
    stdout: bool
    stderr: bool
    terminal: bool

    @classmethod
    def of(cls, query: Mapping[str, Sequence[str]]) -> Self:
        """From the parameters of the API server's request to a kubelet."""

        def asked(name: str) -> bool:
            return query.get(name) == ["1"]

        return cls(query.get("command", ()), asked("input"), asked("output"), asked("error"), asked("tty"))


def serve(connection: websocket.WebSocket, container: PodProcess, wish: Wish) -> None:
    """Run the command in the container until it or the connection ends, and tell how it ended."""
    connection.settimeout(IDLE_SECONDS)
    # The client learns that it is connected before the command has said anything.
    connection.send_binary(bytes([Channel.OUTPUT if wish.stdout else Channel.STATUS]))
    try:
        with _Session(connection, container, wish) as session:
            status = session.run()
    except StartError as error:
        message = f"error executing command in container: {error}"
        status = {"status": "Failure", "reason": "InternalError", "code": 500, "message": message}
    if status is not None:
        with suppress(OSError, websocket.WebSocketException):
            connection.send_binary(bytes([Channel.STATUS]) + json.dumps({"metadata": {}, **status}).encode())
            connection.close()


class _Session:
    """The command's process and this side of its streams; what is open is closed with it."""

    def __init__(self, connection: websocket.WebSocket, container: PodProcess, wish: Wish) -> None:
        self._connection = connection
        self._input: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        """None: no more comes."""
        self._outputs: dict[int, Channel] = {}
        self._terminal: int | None = None
        self._open = ExitStack()
        with ExitStack() as theirs:
            streams = self._terminal_streams(theirs) if wish.terminal else self._pipes(theirs, wish)
            try:
                self._process = container.beside(wish.command, streams)
            except StartError:
                self._open.close()
                raise

    def __enter__(self) -> Self:
        threading.Thread(target=self._feed, name="exec input", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.signal(signal.SIGKILL)
        self._process.wait()
        self._input.put(None)
        self._open.close()

    def run(self) -> dict[str, Any] | None:
        """Until the command ends: its status. None: the client is gone."""
        ended = os.pidfd_open(self._process.pid)
        self._open.callback(os.close, ended)
        while True:
            connection = self._connection.fileno()
            ready = wait([connection, ended, *self._outputs], IDLE_SECONDS)
            if not ready or (connection in ready and not self._heed()):
                return None
            for output in self._outputs.keys() & ready:
                self._pass_on(output)
            if ended in ready:
                code = self._process.wait()
                self._drain()
                return _status(128 - code if code < 0 else code)

    def _terminal_streams(self, theirs: ExitStack) -> Streams:
        ours, other = pty.openpty()
        self._open.callback(os.close, ours)
        theirs.callback(os.close, other)
        self._terminal = ours
        self._feeding = self._open.enter_context(os.fdopen(os.dup(ours), "wb", buffering=0))
        self._outputs[ours] = Channel.OUTPUT
        return Streams(other, other, other, terminal=True)

    def _pipes(self, theirs: ExitStack, wish: Wish) -> Streams:
        reader, writer = os.pipe()
        self._feeding = self._open.enter_context(os.fdopen(writer, "wb", buffering=0))
        theirs.callback(os.close, reader)
        if not wish.stdin:
            self._input.put(None)
        writers: list[int] = []
        for channel in (Channel.OUTPUT, Channel.ERRORS):
            output, writer = os.pipe()
            self._open.callback(os.close, output)
            theirs.callback(os.close, writer)
            self._outputs[output] = channel
            writers.append(writer)
        return Streams(reader, *writers, terminal=False)

    def _feed(self) -> None:
        """Give the command its input; ends with the input or the command."""
        # Closed at once where the command or its connection has ended.
        with suppress(OSError, ValueError), self._feeding as feeding:
            while (data := self._input.get()) is not None:
                while data:
                    data = data[feeding.write(data) :]

    def _heed(self) -> bool:
        """Take what the client has sent; False when it is gone."""
        while True:
            try:
                code, frame = self._connection.recv_data_frame()
            except (OSError, websocket.WebSocketException):
                return False
            if code == websocket.ABNF.OPCODE_CLOSE:
                return False
            if frame.data:
                self._take(frame.data[0], frame.data[1:])
            # What TLS has decrypted already, `select` does not see.
            connection: Any = self._connection.sock
            if not connection.pending():
                return True

    def _take(self, channel: int, data: bytes) -> None:
        if channel == Channel.INPUT and data:
            self._input.put(data)
        elif channel == Channel.CLOSED and data == bytes([Channel.INPUT]):
            self._input.put(b"\x04" if self._terminal is not None else None)
        elif channel == Channel.SIZE and self._terminal is not None:
            with suppress(ValueError, KeyError, struct.error):
                size = json.loads(data)
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, packed)

    def _pass_on(self, output: int) -> None:
        try:
            data = os.read(output, _BLOCK_BYTES)
        except OSError as error:
            # How a terminal says that nobody is left on its other side.
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self._connection.send_binary(bytes([self._outputs[output]]) + data)
        else:
            del self._outputs[output]

    def _drain(self) -> None:
        """The last words: what is there now, for what the command left behind may hold its streams for ever."""
        while ready := self._outputs.keys() & wait(list(self._outputs), 0):
            for output in ready:
                self._pass_on(output)


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"status": SUCCESS}
    return {
        "status": "Failure",
        "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": EXIT_CODE, "message": str(code)}]},
    }

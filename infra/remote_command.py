"""A command in a container, through the API server over a WebSocket, as `kubectl exec` has it.

Owns the connection, its channels and what its last word means. The protocol is
https://kubernetes.io/docs/reference/using-api/websockets/; the framing is the library's. Whose terminal it is, and
which container is meant, is the callers' affair.
"""

import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import websocket

from infra.kubernetes import ApiServer, refusal

PROTOCOL = "v5.channel.k8s.io"
"""The first in which the end of the input can be told."""

SUCCESS = "Success"
EXIT_CODE = "ExitCode"
"""Reason of the cause whose message is the number."""

_PORT = 443
_CONNECT_SECONDS = 30.0
_BLOCK_BYTES = 1 << 16
_UNKNOWN_CODE = 255
"""Of a command whose end nobody told."""


class Channel(IntEnum):
    """First byte of a message: whose data follows."""

    INPUT = 0
    OUTPUT = 1
    ERRORS = 2
    STATUS = 3
    SIZE = 4
    CLOSED = 255
    """What follows is the number of the channel that ends."""


@dataclass(frozen=True)
class Container:
    """Where a command runs."""

    namespace: str
    pod: str
    name: str


@dataclass(frozen=True)
class Ended:
    """A command that has run."""

    exit_code: int
    output: bytes
    errors: bytes


class NotStarted(RuntimeError):
    """The command could not be started in the container; the node's own words."""


class RemoteCommand:
    """A running command; a context manager that hangs up. For one thread."""

    def __init__(self, connection: websocket.WebSocket, stdin: bool) -> None:
        self._connection = connection
        self._stdin = stdin
        self.exit_code: int | None = None
        """None while it runs."""

    @classmethod
    def start(
        cls, api: ApiServer, container: Container, command: Sequence[str], *, stdin: bool, terminal: bool
    ) -> Self:
        """Start the command. With a terminal, errors come among the output.

        Raises:
            ApiError: the API server refused: no right to, no such pod, no such container.
            OSError: it cannot be reached.
        """
        flags = {"stdin": stdin, "stdout": True, "stderr": not terminal, "tty": terminal}
        query = [("container", container.name), *((name, str(flag).lower()) for name, flag in flags.items())]
        query += [("command", word) for word in command]
        path = f"/api/v1/namespaces/{container.namespace}/pods/{container.pod}/exec?{urlencode(query)}"
        return cls(_connect(api, path), stdin)

    def fileno(self) -> int:
        """For `select`; see `pending` as well."""
        return self._connection.fileno()

    def pending(self) -> bool:
        """Whether something was read already that `select` does not know of."""
        connection: Any = self._connection.sock
        return connection is not None and connection.pending() > 0

    def send(self, data: bytes) -> None:
        """To the command's input."""
        for start in range(0, len(data), _BLOCK_BYTES):
            self._send(Channel.INPUT, data[start : start + _BLOCK_BYTES])

    def ping(self) -> None:
        """Say that one is there: who is silent for long is taken for gone by what lies between."""
        self._tell(self._connection.ping)

    def end_input(self) -> None:
        """No more input comes."""
        if self._stdin:
            self._send(Channel.CLOSED, bytes([Channel.INPUT]))

    def resize(self, columns: int, lines: int) -> None:
        """The terminal has this size now."""
        self._send(Channel.SIZE, json.dumps({"Width": columns, "Height": lines}).encode())

    def receive(self, timeout_seconds: float | None = None) -> tuple[Channel, bytes] | None:
        """What the command says next, on OUTPUT or ERRORS; None when it has ended.

        It may be nothing: nodes say that to begin with, and servers that they are there; whoever selects must not wait
        here for more.

        Raises:
            NotStarted: there was never a command.
            TimeoutError: nothing came in time.
            OSError: the connection broke, and nobody knows what becomes of the command.
        """
        while self.exit_code is None:
            message = self._message(timeout_seconds)
            if message is None:
                raise ConnectionError("the connection to the command ended before the command did")
            if not message:
                return Channel.OUTPUT, b""
            channel, data = message[0], message[1:]
            if channel == Channel.STATUS:
                self.exit_code = exit_code(json.loads(data))
            elif channel in (Channel.OUTPUT, Channel.ERRORS):
                return Channel(channel), data
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.shutdown()

    def _send(self, channel: Channel, data: bytes) -> None:
        self._tell(lambda: self._connection.send_binary(bytes([channel]) + data))

    def _tell(self, send: Callable[[], object]) -> None:
        try:
            send()
        except (websocket.WebSocketException, OSError) as error:
            raise ConnectionError(f"the connection to the command broke: {error}") from error

    def _message(self, timeout_seconds: float | None) -> bytes | None:
        self._connection.settimeout(timeout_seconds)
        try:
            code, frame = self._connection.recv_data_frame(control_frame=True)
        except websocket.WebSocketTimeoutException as error:
            raise TimeoutError("the command said nothing in time") from error
        except websocket.WebSocketConnectionClosedException:
            return None
        except websocket.WebSocketException as error:
            raise ConnectionError(str(error)) from error
        if code in (websocket.ABNF.OPCODE_PING, websocket.ABNF.OPCODE_PONG):
            return b""
        return None if code == websocket.ABNF.OPCODE_CLOSE else frame.data


def run(
    api: ApiServer, container: Container, command: Sequence[str], *, timeout_seconds: float, stdin: bytes | None = None
) -> Ended:
    """Run a command to its end; all that it said.

    Raises:
        ApiError, OSError: as `RemoteCommand.start`.
        NotStarted: the container has no such program.
        TimeoutError: it did not end in time. It is ended with the connection.
    """
    said: dict[Channel, list[bytes]] = {Channel.OUTPUT: [], Channel.ERRORS: []}
    with RemoteCommand.start(api, container, command, stdin=stdin is not None, terminal=False) as remote:
        if stdin is not None:
            remote.send(stdin)
            remote.end_input()
        for channel, data in _until(remote, time.monotonic() + timeout_seconds):
            said[channel].append(data)
    code = _UNKNOWN_CODE if remote.exit_code is None else remote.exit_code
    return Ended(code, *(b"".join(said[channel]) for channel in (Channel.OUTPUT, Channel.ERRORS)))


def exit_code(status: Any) -> int:
    """What the last word on the STATUS channel says.

    Raises:
        NotStarted: that the command never ran.
    """
    if status.get("status") == SUCCESS:
        return 0
    for cause in (status.get("details") or {}).get("causes") or []:
        if cause.get("reason") == EXIT_CODE:
            return int(cause["message"])
    raise NotStarted(status.get("message", "the node gave no reason"))


def _until(remote: RemoteCommand, deadline: float) -> Iterator[tuple[Channel, bytes]]:
    while (said := remote.receive(max(deadline - time.monotonic(), 0.001))) is not None:
        yield said


def _connect(api: ApiServer, path: str) -> websocket.WebSocket:
    address = urlsplit(api.url)
    assert address.hostname is not None
    # Connected here: by itself the library would go through a proxy of the environment, as no other request does.
    plain = socket.create_connection((address.hostname, address.port or _PORT), timeout=_CONNECT_SECONDS)
    try:
        return websocket.create_connection(
            api.url.replace("http", "ws", 1) + path,
            timeout=_CONNECT_SECONDS,
            socket=_tls(api).wrap_socket(plain, server_hostname=address.hostname),
            header=[f"{name}: {value}" for name, value in api.credentials().items()],
            subprotocols=[PROTOCOL],
            suppress_origin=True,
        )
    except websocket.WebSocketBadStatusException as error:
        raise refusal(error.status_code, bytes(error.resp_body or b"")) from None
    except websocket.WebSocketException as error:
        raise ConnectionError(f"{api.url} does not speak {PROTOCOL}: {error}") from error


def _tls(api: ApiServer) -> ssl.SSLContext:
    """The trust and the certificate of the API server's other requests."""
    given: dict[str, Any] = api.pool.connection_pool_kw
    context = ssl.create_default_context(cafile=given.get("ca_certs"))
    if certificate := given.get("cert_file"):
        context.load_cert_chain(certificate, given.get("key_file"))
    return context

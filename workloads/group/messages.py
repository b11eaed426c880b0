"""What hosts and their leader send each other: JSON, one message per line."""

import json
import socket
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from workloads.group.protocol import Begin, Decided, Hello, Ready
from workloads.group.view import Endpoint, HostId, View

LONGEST = 64 << 20
"""Longest message in bytes. A view names every host, and some round's values name every array."""


@dataclass(frozen=True)
class Introduction:
    """The first message on a connection: what the host knows and where it listens."""

    group: str
    """Name of the group, so that a stranger on the port is recognised."""
    hello: Hello
    endpoint: Endpoint


@dataclass(frozen=True)
class Welcome:
    """The answer to an introduction. If it is not welcome, the connection ends."""

    welcome: bool
    token: str
    """Token of the process that answers."""


@dataclass(frozen=True)
class HasState:
    """A host of a joining slice has the state."""


@dataclass(frozen=True)
class Refused:
    """The state arrived damaged at a joining slice. All of its hosts ask to join again."""


@dataclass(frozen=True)
class Cut:
    """A host has lost its connections for data to these slices, although the leader may still reach them."""

    slices: tuple[int, ...]


@dataclass(frozen=True)
class Alive:
    """A sign of life, from either side."""


@dataclass(frozen=True)
class BeginWith:
    """A view begins, and where its hosts listen."""

    begin: Begin
    endpoints: dict[HostId, Endpoint]


@dataclass(frozen=True)
class SliceLost:
    """The receiver's slice is no longer in the view because of a host."""

    host: HostId
    why: str


type Message = Introduction | Welcome | HasState | Refused | Cut | Alive | BeginWith | SliceLost | Ready | Decided


def encode(message: Message) -> bytes:
    """Return the message as a line."""
    facts: dict[str, Any] = asdict(message)
    if isinstance(message, BeginWith):
        facts["endpoints"] = [[*host, asdict(endpoint)] for host, endpoint in message.endpoints.items()]
        facts["begin"]["view"]["donors"] = [*message.begin.view.donors.items()]
    return json.dumps({"kind": type(message).__name__, **facts}).encode() + b"\n"


def decode(line: bytes) -> Message:
    """Return the message.

    Raises:
        ValueError: it is not one.
    """
    try:
        facts = json.loads(line)
        return _READ[facts.pop("kind")](facts)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"not a message of a group: {line[:80]!r}") from error


def _hello(facts: dict[str, Any]) -> Hello:
    ready = _ready(facts["ready"]) if facts["ready"] else None
    host, refused = HostId(*facts["host"]), tuple(facts["refused"])
    return Hello(host, facts["view"], facts["finished"], facts["decision"], ready, refused)


def _ready(facts: dict[str, Any]) -> Ready:
    return Ready(HostId(*facts["host"]), facts["view"], facts["round"], facts["value"], facts["holds"])


def _begin(facts: dict[str, Any]) -> BeginWith:
    begin = facts["begin"]
    view = View(
        begin["view"]["number"],
        tuple(begin["view"]["slices"]),
        begin["view"]["led_by"],
        {one: donor for one, donor in begin["view"]["donors"]},
    )
    endpoints = {HostId(one, worker): Endpoint(**at) for one, worker, at in facts["endpoints"]}
    return BeginWith(Begin(view, begin["finished"], begin["decision"]), endpoints)


_READ = {
    "Introduction": lambda facts: Introduction(facts["group"], _hello(facts["hello"]), Endpoint(**facts["endpoint"])),
    "Welcome": lambda facts: Welcome(facts["welcome"], facts["token"]),
    "HasState": lambda _: HasState(),
    "Refused": lambda _: Refused(),
    "Cut": lambda facts: Cut(tuple(facts["slices"])),
    "Alive": lambda _: Alive(),
    "BeginWith": _begin,
    "SliceLost": lambda facts: SliceLost(HostId(*facts["host"]), facts["why"]),
    "Ready": _ready,
    "Decided": lambda facts: Decided(facts["view"], facts["round"], facts["decision"]),
}


class Lines:
    """Messages on one connection. Only one thread reads, and only one writes."""

    def __init__(self, connection: socket.socket):
        self.connection = connection
        self._received = b""

    def received(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that are complete with `data`. Those that the caller does not take come the next time.

        Raises:
            ValueError: the other side does not speak like a host of a group.
        """
        self._received += data
        while (end := self._received.find(b"\n")) >= 0:
            line, self._received = self._received[:end], self._received[end + 1 :]
            yield decode(line)
        if len(self._received) > LONGEST:
            raise ValueError(f"a message of more than {LONGEST} bytes")

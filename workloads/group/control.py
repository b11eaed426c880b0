"""One host's connection to the group: it finds the leader, follows it, and takes part in rounds.

A thread keeps the connection and receives views and decisions. The working thread waits for them here.
"""

import socket
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from workloads.group.leading import ALIVE_EVERY_SECONDS, SILENT_SECONDS, Server
from workloads.group.messages import (
    Alive,
    BeginWith,
    Cut,
    HasState,
    Introduction,
    Lines,
    Message,
    Refused,
    SliceLost,
    Welcome,
    encode,
)
from workloads.group.protocol import Decide, Decided, Leader, Member, Ready, Value
from workloads.group.view import Endpoint, HostId, Register, Registered, View

CONNECT_SECONDS = 2.0

FIRST_RETRY_SECONDS, SLOWEST_RETRY_SECONDS = 0.02, 1.0

PATIENCE_SECONDS = 3.0
"""Time for a host to notice that the leader is lost, after which another one may lead instead."""

GONE_SECONDS = 10.0
"""Time for which no host of the newest view can be reached, after which a slice continues alone from a checkpoint."""


class ViewChanged(Exception):  # noqa: N818 - not an error
    """The round is to be repeated in a newer view."""


class Outside(Exception):  # noqa: N818 - not an error
    """The group went on without this slice, whose state no longer counts."""


class SliceBroken(Exception):  # noqa: N818 - not an error
    """A host of this slice is lost, so that its other processes cannot go on."""


@dataclass(frozen=True)
class GroupSize:
    """The slices of a job."""

    slices: int
    hosts_per_slice: int
    fewest: int
    """Number of slices without which no round is finished."""
    wait_seconds: float
    """Time to wait for all slices when the group begins."""


@dataclass(frozen=True)
class Now:
    """The view that a host works in."""

    view: View
    finished: int
    """Rounds that this host has finished, or that the state has which it needs."""
    needs_state: bool
    """Whether this host has still to get the state from the view's donor of its slice."""
    decision: Value | None
    """Decision of the last finished round."""
    peers: Mapping[int, str]
    """Where the same host of each slice listens for data."""


class Control:
    """This host's part in the group. Its context manager ends its threads and connections."""

    def __init__(
        self,
        register: Register,
        me: HostId,
        size: GroupSize,
        own: Mapping[HostId, Endpoint],
        listener: socket.socket,
        decide: Decide,
    ):
        """`own` are the endpoints of all hosts of this slice, of which `listener` is this host's for control."""
        self.changed = threading.Event()
        """Set when the current round may have to be repeated, so that whoever waits for its data should look."""
        self._register, self._me, self._size, self._own = register, me, size, own
        self._decide = decide
        self._member = Member(me)
        self._known: Registered | None = None
        self._avoids: set[int] = set()
        """Slices whose first host does not lead the newest view's successor."""
        self._asked: dict[int, float] = {}
        """When this host first asked another one to lead, by `time.monotonic()`."""
        self._heard_of_group = 0.0
        self._connection: socket.socket | None = None
        self._founded = self._outside = False
        self._broken = ""
        self._entered = threading.Event()
        self._news = threading.Condition()
        self._sending = threading.Lock()
        self._done = threading.Event()
        self._server = Server(register.group, own[me].token, listener, register, size.fewest, self._break)
        self._thread = threading.Thread(target=self._run, name="follower of the group", daemon=True)

    def __enter__(self) -> Self:
        self._heard_of_group = time.monotonic()
        self._server.start()
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._done.set()
        self._hang_up()
        self._thread.join()
        self._server.close(lingers=error is None)

    def enter(self, seconds: float) -> bool:
        """Find the group. Return whether this slice begins it, and so has to find a state of its own.

        Raises:
            TimeoutError: there is no answer within `seconds`.
            SliceBroken: a host of this slice is lost.
        """
        with self._news:
            if not self._news.wait_for(lambda: self._broken or self._founded or self._member.view, seconds):
                raise TimeoutError(f"no leader of the group answered within {seconds:.0f} s")
            self._raise_if_broken()
            return self._founded

    def has_state(self) -> None:
        """Say that this host has the state with which its view began, or that the group begins with."""
        with self._news:
            if self._founded:
                self._founded = False
                self._member.receive_state(0, None)
                self._lead(set(range(self._size.slices)), self._size.wait_seconds, self._size.fewest)
                return
            self._member.receive_state(self._finished_before, self._decision_before)
        self._tell(HasState())

    def refuse_state(self, view: View) -> None:
        """Ask to join again, because the state arrived damaged in `view`. All hosts of the slice do this."""
        with self._news:
            newest = self._member.view
            if newest is None or newest.number != view.number:
                # Another host of the slice was faster, and the leader has already let this one join again.
                self._member.refused += (view.donors[self._me.slice],)
                return
            self._member.refuse(view.donors[self._me.slice])
            self._begun = False
        self._tell(Refused())
        self._hang_up()

    def now(self, seconds: float) -> Now:
        """Return the view to work in, after waiting for one that includes this host.

        Raises:
            Outside: the group went on without this slice.
            SliceBroken: a host of this slice is lost.
            TimeoutError: there is no view within `seconds`.
        """
        with self._news:
            if not self._news.wait_for(lambda: self._broken or self._outside or self._begun, seconds):
                raise TimeoutError(f"no view of the group includes slice {self._me.slice} after {seconds:.0f} s")
            self._raise_if_broken()
            self.changed.clear()
            view = self._member.view
            assert view
            endpoints = self._known.endpoints if self._known else {}
            peers = {one: endpoints[HostId(one, self._me.worker)].data for one in view.slices}
            if self._member.finished is None:
                return Now(view, self._finished_before, True, self._decision_before, peers)
            return Now(view, self._member.finished, False, self._member.decision, peers)

    def finish(self, now: Now, value: Value, holds: bool, seconds: float) -> Value:
        """Finish the next round with all hosts of the view, and return the leader's decision.

        Raises:
            ViewChanged: the round has to be repeated.
            Outside: the group went on without this slice.
            SliceBroken: a host of this slice is lost.
            TimeoutError: it is not decided within `seconds`.
        """
        with self._news:
            member = self._member
            self._raise_if_broken()
            if not member.view or member.view.number != now.view.number or not self._begun:
                raise ViewChanged
            ready = member.get_ready(value, holds)
        self._tell(ready)
        with self._news:
            if not self._news.wait_for(lambda: self._is_over(now, ready), seconds):
                raise TimeoutError(f"round {ready.round} was not decided within {seconds:.0f} s")
            if member.finished == ready.round:
                return member.decision or {}
            self._raise_if_broken()
            raise ViewChanged

    def miss(self, slices: Iterable[int]) -> None:
        """Note slices whose hosts ended their connections for data, so that this host does not wait for their reports
        if it comes to lead."""
        self._server.miss(frozenset(slices))

    def report_cut(self, slices: Iterable[int]) -> None:
        """Ask the leader to go on without slices to which this host has lost its connections for data."""
        self._tell(Cut(tuple(slices)))

    def wait_for_newer(self, number: int, seconds: float) -> bool:
        """Wait until this host has something else to do than to work in view `number`. Return whether it has."""
        with self._news:
            return bool(
                self._news.wait_for(
                    lambda: (
                        self._broken
                        or self._outside
                        or (self._begun and self._member.view and self._member.view.number > number)
                    ),
                    seconds,
                )
            )

    _begun = False
    """Whether the leader has said how the newest view begins."""
    _finished_before = 0
    _decision_before: Value | None = None

    def _is_over(self, now: Now, ready: Ready) -> bool:
        view, finished = self._member.view, self._member.finished
        moved = not view or view.number != now.view.number
        return bool(self._broken) or self._outside or finished == ready.round or moved

    def _raise_if_broken(self) -> None:
        if self._broken:
            raise SliceBroken(self._broken)
        if self._outside:
            self._outside = False
            raise Outside

    def _break(self, host: HostId, why: str) -> None:
        with self._news:
            self._broken = f"host {host.worker} of slice {host.slice} {why}"
            self.changed.set()
            self._news.notify_all()

    def _run(self) -> None:
        pause = 0.0
        while not self._done.wait(pause):
            try:
                lines = self._seek()
            except Exception as error:  # noqa: BLE001 - whatever storage raises, it may be back the next time
                print(f"the group cannot be found, trying again: {type(error).__name__}: {error}", flush=True)
                lines = None
            pause = 0.0 if lines else min(2 * pause + FIRST_RETRY_SECONDS, SLOWEST_RETRY_SECONDS)
            if lines:
                self._follow(lines)
                lines.connection.close()

    def _seek(self) -> Lines | None:
        """Return a connection to a leader that welcomes this host."""
        self._look_up()
        known = self._known
        if known is None:
            self._found(1)
            return None
        if self._founded:
            # It has nothing to say before it has a state.
            return None
        answered: set[str] = set()
        for target in dict.fromkeys((known.view.led_by, *known.view.slices)):
            at = known.endpoints.get(HostId(target, 0))
            if target in self._avoids or at is None:
                continue
            self._take_over(target, known.view)
            welcome, lines = self._introduce(at.control)
            if lines:
                return lines
            if welcome and welcome.token == at.token:
                answered.add(at.token)
                if self._may_lead_soon(target):
                    return None
            self._avoids.add(target)
        self._avoids.clear()
        if answered:
            self._heard_of_group = time.monotonic()
        elif self._member.finished is None and time.monotonic() - self._heard_of_group > GONE_SECONDS:
            self._found(known.view.number + 1)
        return None

    def _look_up(self) -> None:
        """Take note of a newer view in the register."""
        number = self._known.view.number if self._known else 0
        registered = self._register.newest(number)
        if registered is None:
            return
        at = registered.endpoints.get(self._me)
        included = at is not None and at.token == self._own[self._me].token
        with self._news:
            self._known = registered
            self._avoids.clear()
            self._asked.clear()
            self._heard_of_group = time.monotonic()
            alone = registered.view.slices == (self._me.slice,) and registered.view.led_by == self._me.slice
            if included and alone and self._member.finished is None:
                self._founded, self._member.view = True, registered.view
            elif self._member.view and registered.view.number > self._member.view.number:
                self._outside |= not included and self._member.finished is not None
                self._member.learn(registered.view, included)
                self._begun = False
            self.changed.set()
            self._news.notify_all()

    def _may_lead_soon(self, target: int) -> bool:
        """Return whether to ask again before the next one, because the first host of slice `target` may still have to
        notice that the leader is lost."""
        if self._member.finished is None:
            return False
        since = self._asked.setdefault(target, time.monotonic())
        return time.monotonic() - since < PATIENCE_SECONDS

    def _take_over(self, target: int, view: View) -> None:
        """Lead this host's view if it is the one to do so because its leader is lost."""
        mine = target == self._me.slice and self._me.worker == 0
        if mine and self._member.finished is not None and view.led_by != target:
            self._lead(set(view.slices) - self._avoids, SILENT_SECONDS, 1)

    def _lead(self, awaited: set[int], wait_seconds: float, enough: int) -> None:
        if self._me.worker == 0 and self._known:
            leader = Leader(
                self._me, self._size.hosts_per_slice, self._known.view, awaited - {self._me.slice}, self._decide
            )
            self._server.lead(leader, wait_seconds, enough)

    def _found(self, number: int) -> None:
        """Register a view of this slice alone."""
        if self._me.worker:
            return
        self._register.create(Registered(View(number, (self._me.slice,), self._me.slice), self._own))

    def _introduce(self, address: str) -> tuple[Welcome | None, Lines | None]:
        host, _, port = address.rpartition(":")
        connection = None
        with suppress(OSError, ValueError):
            connection = socket.create_connection((host, int(port)), CONNECT_SECONDS)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            lines = Lines(connection)
            hello = Introduction(self._register.group, self._member.hello, self._own[self._me])
            connection.sendall(encode(hello))
            while data := connection.recv(1 << 16):
                for message in lines.received(data):
                    if isinstance(message, Welcome):
                        return (message, lines) if message.welcome else (message, None)
        if connection:
            connection.close()
        return None, None

    def _follow(self, lines: Lines) -> None:
        """Receive what the leader says until the connection ends."""
        connection = lines.connection
        connection.settimeout(ALIVE_EVERY_SECONDS)
        self._connection, heard, signed = connection, time.monotonic(), 0.0
        data = b""  # The leader may have said more together with its welcome.
        while not self._done.is_set() and time.monotonic() - heard < SILENT_SECONDS:
            try:
                for message in lines.received(data):
                    self._take(message)
                data = b""
                if time.monotonic() - signed > ALIVE_EVERY_SECONDS:
                    signed = time.monotonic()
                    self._tell(Alive())
                data = connection.recv(1 << 20)
                if not data:
                    break
                heard = time.monotonic()
            except TimeoutError:
                continue
            except (OSError, ValueError):
                break
        self._connection = None
        self.changed.set()

    def _take(self, message: Message) -> None:
        with self._news:
            if isinstance(message, BeginWith):
                self._known = Registered(message.begin.view, message.endpoints)
                self._member.begin(message.begin)
                self._finished_before, self._decision_before = message.begin.finished, message.begin.decision
                self._begun, self._outside = True, False
                self._avoids.clear()
                self._asked.clear()
                self.changed.set()
            elif isinstance(message, Decided):
                self._member.decide(message)
            elif isinstance(message, SliceLost):
                self._broken = f"host {message.host.worker} of slice {message.host.slice} {message.why}"
                self.changed.set()
            self._news.notify_all()

    def _tell(self, message: Message) -> None:
        # If the connection is gone, the next leader hears it from the next introduction.
        with self._sending, suppress(OSError):
            if connection := self._connection:
                connection.sendall(encode(message))

    def _hang_up(self) -> None:
        if connection := self._connection:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

"""Runs the leader's side of the control plane on the first host of a slice: it listens, and leads if it has to.

Each host of a view keeps one connection to the leader. A host is lost when its connection ends, which happens at once
if its process ends, or when it gives no sign of life for SILENT_SECONDS.
"""

import queue
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

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
from workloads.group.protocol import Begin, Leader, Ready
from workloads.group.view import Endpoint, HostId, Register, Registered

ALIVE_EVERY_SECONDS = 0.5

SILENT_SECONDS = 5.0
"""Time without a sign of life after which a host is lost. A process that is only busy, as when it compiles, gives one,
because that leaves Python's lock free."""

LINGER_SECONDS = 2.0
"""Time that a leader whose training has ended waits for the others to end too. If it ended at once, some of them might
lose its last decision."""

SEND_SECONDS = 5.0
"""Time limit of a send, after which the receiver counts as lost."""


@dataclass
class _Connected:
    """A connection to this host."""

    lines: Lines
    heard: float
    host: HostId | None = None
    """Known after its introduction."""
    endpoint: Endpoint | None = None


@dataclass
class Server:
    """Listens on `listener` for hosts, in a thread of its own. Everything that it knows is used only by that thread."""

    group: str
    token: str
    listener: socket.socket
    register: Register
    fewest: int
    """Number of slices without which no round is decided."""
    lost: Callable[[HostId, str], None]
    """Called when a host of the leader's own slice is lost."""
    _tasks: "queue.SimpleQueue[Callable[[], None]]" = field(default_factory=queue.SimpleQueue[Any])
    _leader: Leader | None = None
    _by_host: dict[HostId, _Connected] = field(default_factory=dict[HostId, _Connected])
    _due: float = float("inf")
    """When the leader stops waiting for other slices, by `time.monotonic()`."""
    _enough: int = 1
    """Number of slices with which it then begins."""

    def __post_init__(self):
        self._selector = selectors.DefaultSelector()
        self._storage = ThreadPoolExecutor(1, thread_name_prefix="register of views")
        self._done, self._lingers = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="leader of the group", daemon=True)

    def start(self) -> None:
        self.listener.setblocking(False)
        self._selector.register(self.listener, selectors.EVENT_READ)
        self._thread.start()

    def close(self, *, lingers: bool) -> None:
        """End. If it `lingers`, the hosts that this one leads may end their connections first."""
        self._lingers = lingers
        self._done.set()
        self._thread.join()
        self._storage.shutdown(wait=False)

    def lead(self, leader: Leader, wait_seconds: float, enough: int) -> None:
        """Begin to lead. After `wait_seconds`, no longer wait for missing slices if `enough` are there."""

        def begin() -> None:
            if self._leader is None or self._leader.resigned:
                self._leader, self._due, self._enough = leader, time.monotonic() + wait_seconds, enough
                print(f"slice {leader.me.slice} leads the group after view {leader.previous.number}", flush=True)

        self._tasks.put(begin)

    def miss(self, slices: frozenset[int]) -> None:
        """No longer wait for reports of these slices."""

        def miss() -> None:
            if self._leader and self._leader.view is None:
                self._leader.miss(slices)

        self._tasks.put(miss)

    def _run(self) -> None:
        last_sign, ends = 0.0, float("inf")
        while time.monotonic() < ends:
            if self._done.is_set():
                ends = min(ends, time.monotonic() + LINGER_SECONDS) if self._by_host and self._lingers else 0.0
            for key, _ in self._selector.select(0.02):
                if key.fileobj is self.listener:
                    self._accept()
                else:
                    self._read(key.data)
            while not self._tasks.empty():
                self._tasks.get()()
            now = time.monotonic()
            if now - last_sign > ALIVE_EVERY_SECONDS:
                last_sign = now
                for connected in [*self._by_host.values()]:
                    self._send(connected, Alive())
                if self._leader and self._leader.view is None:
                    self._storage.submit(self._look_for_newer, self._leader)
            for connected in self._all():
                if now - connected.heard > SILENT_SECONDS:
                    self._drop(connected, f"gave no sign of life for {SILENT_SECONDS:g} s")
            if now > self._due and self._leader and self._leader.view is None:
                present = {host.slice for host in self._by_host}
                if len(present) >= self._enough:
                    self._leader.miss(self._leader.awaited - present)
                    self._due = float("inf")
            self._propose()
        for connected in self._all():
            connected.lines.connection.close()
        self.listener.close()
        self._selector.close()

    def _all(self) -> list[_Connected]:
        return [key.data for key in self._selector.get_map().values() if key.data is not None]

    def _accept(self) -> None:
        connection, _ = self.listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(SEND_SECONDS)
        self._selector.register(connection, selectors.EVENT_READ, _Connected(Lines(connection), time.monotonic()))

    def _read(self, connected: _Connected) -> None:
        try:
            data = connected.lines.connection.recv(1 << 16)
            if not data:
                self._drop(connected, "ended its connection")
                return
            connected.heard = time.monotonic()
            for message in connected.lines.received(data):
                self._hear(connected, message)
        except OSError as error:
            self._drop(connected, f"ended its connection ({error})")
        except ValueError:
            self._drop(connected, "is not a host of the group")

    def _hear(self, connected: _Connected, message: Message) -> None:
        leader = self._leader
        if isinstance(message, Introduction) and message.group == self.group:
            host = message.hello.host
            if before := self._by_host.pop(host, None):
                self._drop(before, "connected again")
                if leader:
                    leader.lose(host)
                    self._propose()
            welcome = leader is not None and leader.hear(message.hello)
            if welcome:
                connected.host, connected.endpoint = host, message.endpoint
                self._by_host[host] = connected
            self._send(connected, Welcome(welcome, self.token))
            if not welcome:
                self._drop(connected, "")
        elif leader is None or connected.host is None:
            pass
        elif isinstance(message, HasState):
            leader.receive(connected.host)
        elif isinstance(message, Refused):
            self._dismiss(connected.host.slice)
        elif isinstance(message, Cut):
            self._separate(connected.host, message.slices)
        elif isinstance(message, Ready):
            self._listen(leader, message)

    def _listen(self, leader: Leader, ready: Ready) -> None:
        enough = leader.view is not None and len(leader.view.slices) >= self.fewest
        if leader.view and enough and (decided := leader.listen(ready)):
            for host in leader.view.hosts(leader.hosts_per_slice):
                if host in self._by_host:
                    self._send(self._by_host[host], decided)

    def _dismiss(self, one: int) -> None:
        """End the connections of a slice whose hosts all join again, so that none of them counts as lost."""
        print(f"group: slice {one} refuses a state that arrived damaged", flush=True)
        self._drop_slice(one, "")

    def _separate(self, reporter: HostId, slices: Sequence[int]) -> None:
        """Go on without slices that cannot exchange data with another. The leader's own slice stays."""
        own = self._leader.me.slice if self._leader else -1
        for one in slices:
            leaves, stays = (reporter.slice, one) if one == own else (one, reporter.slice)
            self._drop_slice(leaves, f"cannot exchange data with slice {stays}")

    def _drop_slice(self, one: int, why: str) -> None:
        for host, connected in [*self._by_host.items()]:
            if host.slice == one:
                self._drop(connected, why)

    def _send(self, connected: _Connected, message: Message) -> None:
        try:
            connected.lines.connection.sendall(encode(message))
        except OSError as error:
            self._drop(connected, f"does not receive ({error})")

    def _drop(self, connected: _Connected, why: str) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(connected.lines.connection)
        connected.lines.connection.close()
        host = connected.host
        if host is None or self._by_host.get(host) is not connected:
            return
        del self._by_host[host]
        if self._leader is None:
            return
        self._leader.lose(host)
        if host.slice == self._leader.me.slice:
            self.lost(host, why)
        for other, its in [*self._by_host.items()]:
            if other.slice == host.slice and why:
                self._send(its, SliceLost(host, why))
        if why and not self._done.is_set():
            print(f"group: host {host.worker} of slice {host.slice} {why}", flush=True)

    def _propose(self) -> None:
        leader = self._leader
        if leader is None or self._done.is_set():
            return
        if view := leader.propose():
            endpoints = {
                host: at.endpoint for host, at in self._by_host.items() if host.slice in view.slices and at.endpoint
            }
            registered = Registered(view, endpoints)
            self._storage.submit(self._create, registered)
        elif leader.resigned:
            self._resign()

    def _look_for_newer(self, leader: Leader) -> None:
        """Run in a thread. Resign if another host has registered a view while this one waits for reports."""
        with suppress(Exception):
            if self.register.newest(leader.previous.number):
                self._tasks.put(lambda: self._resign_if(leader))

    def _resign_if(self, leader: Leader) -> None:
        if self._leader is leader and leader.view is None:
            self._resign()

    def _create(self, registered: Registered) -> None:
        """Run in a thread, because storage may be slow."""
        while True:
            try:
                first = self.register.create(registered)
                break
            except Exception as error:  # noqa: BLE001 - whatever storage raises, it may be back the next time
                print(f"view {registered.view.number} cannot be registered, trying again: {error}", flush=True)
                time.sleep(1)
        self._tasks.put(lambda: self._begin(first, registered))

    def _begin(self, first: bool, registered: Registered) -> None:
        assert self._leader
        begin = self._leader.register(first)
        if begin is None:
            self._resign()
            return
        self._announce(begin, registered)
        for host in self._leader.strangers:
            self._leader.lose(host)
            self._drop(self._by_host[host], "")

    def _announce(self, begin: Begin, registered: Registered) -> None:
        assert self._leader
        print(f"group: view {begin.view.number} of slices {', '.join(map(str, begin.view.slices))}", flush=True)
        for host in begin.view.hosts(self._leader.hosts_per_slice):
            if host in self._by_host:
                self._send(self._by_host[host], BeginWith(begin, dict(registered.endpoints)))

    def _resign(self) -> None:
        self._leader = None
        for connected in [*self._by_host.values()]:
            self._drop(connected, "")
        self._by_host.clear()

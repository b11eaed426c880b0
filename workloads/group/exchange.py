"""Sums vectors with the hosts of the same index in the other slices of a view, and transfers arrays to one of them."""

import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event
from typing import Self

import numpy as np

from workloads.group.arrays import Receiving, Sending, Transfer
from workloads.group.frames import Aborted
from workloads.group.lanes import Lane, LaneTraffic, Task
from workloads.group.links import Greeting, Links
from workloads.group.sums import WIRE_TYPES, Layout, Memory, Sum, SumInLane

_LOOK_SECONDS = 0.02
"""Time between two looks at what may end a task."""
_GRACE_SECONDS = 0.05
"""Time in which the rest of what a peer sent may come after one of its connections has ended."""


@dataclass(frozen=True)
class Traffic:
    """What this host did for one sum or transfer."""

    sent_bytes: int
    received_bytes: int
    seconds: float
    waited_seconds: float
    """Seconds until every peer that sends something had begun to."""
    last: int | None
    """Slice that was the last to begin, `None` if nothing comes from other slices."""


class Exchange:
    """Connections of this host for one view. Only one method may run at a time."""

    def __init__(self, links: Links, peers: Mapping[int, str], view: int):
        """Begin to open the connections.

        Args:
            links: this host's links. Connections of earlier views are refused from now on.
            peers: address of the host with the same index in every slice of the view, including this one.
            view: number of the view. It must be higher than those before.

        Raises:
            ValueError: this slice is not in the view, or a later view has begun.
        """
        if links.slice not in peers:
            raise ValueError(f"slice {links.slice} is not in view {view}, which has the slices {sorted(peers)}")
        self._links, self._view, self._slices = links, view, tuple(sorted(peers))
        self._streams = links.streams if len(peers) > 1 else 1
        self._events = SimpleQueue[LaneTraffic | Exception]()
        self._ended = dict[int, float]()
        """Time by `time.monotonic()` when the first connection to a slice ended."""
        self._step = -1
        self._closed = False
        self._memories = [Memory() for _ in range(self._streams)]
        self._rounded = np.empty(0, np.float32)
        others = [each for each in self._slices if each != links.slice]
        self._lanes = [Lane(f"lane {stream}", others, self) for stream in range(self._streams)] if others else []
        try:
            links.claim(view, self._take)
        except ValueError:
            self._end_lanes()
            raise
        for other in others:
            self._connect(other, peers[other])

    @property
    def lost(self) -> frozenset[int]:
        """Slices whose connections have ended."""
        return frozenset(self._ended)

    def sum(
        self,
        step: int,
        own: Mapping[int, np.ndarray],
        parts: Mapping[int, int],
        wire: np.dtype,
        out: np.ndarray,
        stop: Event,
    ) -> Traffic:
        """Write the sum over all parts to `out`.

        Parts are added in the order of their numbers in float32, and the sum is rounded to the wire's type once. All
        slices get the same bits, which depend neither on the slices nor on which of them holds which part.

        Args:
            step: number of the sum. It must be higher than those before in this view.
            own: this host's vector [size] of the wire's type for each of its parts.
            parts: slice that holds each part.
            wire: float32 or bfloat16.
            out: float32 vector [size], whose content is undefined if the sum fails.
            stop: ends the sum if it is set.

        Raises:
            Aborted: `stop` is set, or a peer is gone. The exchange is closed.
            Damaged: bytes arrived changed. The exchange is closed.
            ValueError: the arguments do not fit each other. Nothing was sent.
        """
        self._check(step, own, parts, wire, out)
        layout = Layout(out.size, wire, tuple(sorted(parts.items())), self._slices, self._streams)
        first, last = layout.chunk(self._links.slice)
        if (self._rounded.dtype, self._rounded.size) != (wire, last - first):
            self._rounded = np.empty(last - first, wire)
        sum_ = Sum(step, layout, self._links.slice, own, out, self._rounded)
        self._step = step
        return self._run(lambda stream: SumInLane(sum_, stream, self._memories[stream]), stop)

    def send_arrays(self, name: str, receiver: int, arrays: Sequence[np.ndarray], stop: Event) -> Traffic:
        """Send arrays to a slice, which receives them under the same name.

        Raises:
            Aborted: `stop` is set, or the receiver is gone. The exchange is closed.
        """
        transfer = self._transfer(name, receiver, arrays)
        return self._run(lambda stream: Sending(transfer, receiver, stream, self._streams), stop)

    def receive_arrays(self, name: str, sender: int, arrays: Sequence[np.ndarray], stop: Event) -> Traffic:
        """Receive arrays from a slice into arrays of the same shapes and types.

        Raises:
            Aborted: `stop` is set, or the sender is gone. The exchange is closed.
            Damaged: bytes arrived changed. The exchange is closed.
        """
        transfer = self._transfer(name, sender, arrays)
        return self._run(lambda stream: Receiving(transfer, sender, stream, self._streams), stop)

    def close(self) -> None:
        """Close all connections. What was sent still arrives."""
        if self._closed:
            return
        self._closed = True
        self._links.release(self._view)
        self._end_lanes()

    def _end_lanes(self) -> None:
        for lane in self._lanes:
            lane.end()
        for lane in self._lanes:
            lane.join()
        for lane in self._lanes:
            lane.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The lanes report to these three.

    def done(self, traffic: LaneTraffic) -> None:
        self._events.put(traffic)

    def failed(self, error: Exception) -> None:
        self._events.put(error)

    def ended(self, peer: int) -> None:
        self._ended.setdefault(peer, time.monotonic())

    def _connect(self, other: int, address: str) -> None:
        """Open the connections that are this host's to open.

        The higher slice opens the data connections, and the lower one the watch connection. Each of them notices in
        this way that the other does not listen any more.
        """
        own, watch = self._links.slice, self._streams
        for stream in range(watch) if other < own else [watch]:
            greeting = Greeting(self._view, own, other, stream, self._streams)
            try:
                connection, first = self._links.connect(address, greeting)
            except OSError:
                self.ended(other)
            else:
                self._lanes[stream % watch].add(other, connection, first, watch=stream == watch)

    def _take(self, greeting: Greeting, connection: socket.socket) -> None:
        if greeting.sender not in self._slices:
            connection.close()
            return
        watch = greeting.stream == self._streams
        self._lanes[greeting.stream % self._streams].add(greeting.sender, connection, watch=watch)

    def _run(self, share: Callable[[int], Task], stop: Event) -> Traffic:
        began = time.monotonic()
        if self._closed:
            raise Aborted(f"the exchange of view {self._view} is closed", self.lost)
        try:
            # An error of a lane says more than the end of the connection that follows it.
            if not self._events.empty():
                self._wait(stop)
            self._require_all(began)
            if not self._lanes:
                list(share(0).begin())
            for stream, lane in enumerate(self._lanes):
                lane.begin(share(stream))
            lanes = [self._wait(stop) for _ in self._lanes]
        except BaseException:
            # The threads must not use the caller's memory after this.
            self.close()
            raise
        firsts = dict[int, float]()
        for lane in lanes:
            for peer, first in lane.first_frames.items():
                firsts[peer] = min(first, firsts.get(peer, first))
        last = max(firsts, key=firsts.__getitem__, default=None)
        waited = 0.0 if last is None else max(0.0, firsts[last] - began)
        sent, received = (sum(each) for each in ([x.sent_bytes for x in lanes], [x.received_bytes for x in lanes]))
        return Traffic(sent, received, time.monotonic() - began, waited, last)

    def _wait(self, stop: Event) -> LaneTraffic:
        while not stop.is_set():
            try:
                event = self._events.get(timeout=_LOOK_SECONDS)
            except Empty:
                self._require_all(time.monotonic() - _GRACE_SECONDS)
                continue
            if isinstance(event, Exception):
                raise event
            return event
        raise Aborted(f"the exchange of view {self._view} was stopped", self.lost)

    def _require_all(self, until: float) -> None:
        """Raise `Aborted` if a connection had ended until then."""
        if any(ended <= until for ended in self._ended.copy().values()):
            gone = ", ".join(map(str, sorted(self._ended)))
            raise Aborted(f"connections to slice {gone} have ended", self.lost)

    def _transfer(self, name: str, peer: int, arrays: Sequence[np.ndarray]) -> Transfer:
        if peer not in self._slices or peer == self._links.slice:
            raise ValueError(f"{name!r} goes to or comes from slice {peer}, which is no other slice of {self._slices}")
        return Transfer.of(name, arrays)

    def _check(
        self, step: int, own: Mapping[int, np.ndarray], parts: Mapping[int, int], wire: np.dtype, out: np.ndarray
    ) -> None:
        slice_ = self._links.slice
        held = sorted(part for part, holder in parts.items() if holder == slice_)
        problems = [
            f"part {part} is {value.dtype}{list(value.shape)} instead of {wire}[{out.size}], or not contiguous"
            for part, value in own.items()
            if value.dtype != wire or value.shape != (out.size,) or not value.flags.c_contiguous
        ]
        if step <= self._step:
            problems.append(f"step {step} comes after step {self._step}")
        if sorted(own) != held:
            problems.append(f"slice {slice_} holds the parts {held}, but has the vectors {sorted(own)}")
        if not parts or not set(parts.values()) <= set(self._slices):
            problems.append(f"the parts {dict(parts)} are not all in the slices {self._slices}")
        if wire not in WIRE_TYPES:
            problems.append(f"the type {wire} is none of {', '.join(map(str, WIRE_TYPES))}")
        if out.dtype != np.float32 or out.ndim != 1 or not out.flags.c_contiguous or not out.flags.writeable:
            problems.append("the result must be a contiguous float32 vector that can be written")
        if problems:
            raise ValueError(f"sum of step {step}: {'; '.join(problems)}")

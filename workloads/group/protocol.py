"""The rules by which the hosts of a group agree, without any input or output: events in, messages out.

Training is a sequence of rounds that all hosts take part in. A round is a step of the optimizer, or an exchange of
numbers such as those of an evaluation. A host that has everything for the next round says `Ready`; when all hosts of
the view have said so, the leader says `Decided`, and all of them finish the round. For a step, a host is ready when it
holds the sum of the gradients of all parts, so no host applies a sum that another host of the view does not hold.

    1  Views are numbered, and the first to register view N decides what it is (`view`). Only the hosts of a view can
       finish a round in it, and only together.
    2  The first host of the slice that registered a view leads it. It decides rounds, and it registers the next view
       when it loses a host, or when a slice that was lost is complete again and wants to join.
    3  A host that loses the leader reports to the first host of the lowest remaining slice of its view. That one
       registers the next view with the slices whose hosts have all reported, or learns that another host did.
    4  A new view begins where its hosts are. If one of them has finished a round, the others were ready for it, hold
       its sum and finish it too. If all are ready for a round whose sum they hold, the lost leader may have decided it,
       so it is finished. Otherwise no host can have finished it, and it is repeated by the slices of the new view.
    5  A slice that is not in the newest view, or whose processes are new, has no state that counts. It asks the leader
       of the newest view to join, and gets the state of another slice. If the state arrives damaged, the slice asks
       again, and gets that of another one; if it has refused every other slice TRIES times, it gets the state through
       storage.
    6  If no host of the newest view can be reached, a slice registers the next view alone and continues from the last
       checkpoint.

A host that hears of a newer view leaves the older one and never speaks in it again. `tests/workloads/group` explores
all orders of messages, losses and returns of three slices, and checks that no two hosts ever finish a round
differently.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from workloads.group.view import STORAGE, HostId, View

TRIES = 2
"""Number of times that a slice asks each other slice for the state before it gets the state through storage. A save is
much slower than a second try."""

OPEN = "open"
"""Key of a decision: whether slices may join before the next round. Default: they may."""

type Value = Mapping[str, Any]
"""What a host contributes to a round, made of what JSON has."""

type Decide = Callable[[Mapping[HostId, Value]], Value]
"""Function of the leader that makes the decision of a round from the values of all hosts of the view."""


@dataclass(frozen=True)
class Ready:
    """A host has everything for a round of a view."""

    host: HostId
    view: int
    round: int
    value: Value
    holds: bool
    """Whether the host can finish the round even if all others are lost, because it holds the sum."""


@dataclass(frozen=True)
class Hello:
    """What a host knows, for a leader that it turns to."""

    host: HostId
    view: int
    """Number of the newest view that it was in, or 0."""
    finished: int | None
    """Rounds that it has finished. `None` if it has no state, so that it can only join."""
    decision: Value | None
    """Decision of the last one."""
    ready: Ready | None
    """What it said about the next one."""
    refused: tuple[int, ...] = ()
    """Donors whose state arrived damaged since it last had a state, in order. A donor may be in it several times."""


@dataclass(frozen=True)
class Begin:
    """A view begins, after `finished` rounds."""

    view: View
    finished: int
    decision: Value | None
    """Decision of the last finished round, for hosts that have not finished it."""


@dataclass(frozen=True)
class Decided:
    """All hosts of the view finish a round."""

    view: int
    round: int
    decision: Value


@dataclass
class Member:
    """One host's part in the group."""

    me: HostId
    view: View | None = None
    """The newest view that it is in."""
    finished: int | None = None
    """Rounds that it has finished. `None` without a state."""
    decision: Value | None = None
    ready: Ready | None = None
    refused: tuple[int, ...] = ()
    """Donors whose state arrived damaged since it last had a state."""

    @property
    def hello(self) -> Hello:
        number = self.view.number if self.view else 0
        return Hello(self.me, number, self.finished, self.decision, self.ready, self.refused)

    @property
    def takes_part(self) -> bool:
        """Whether it can contribute to the next round of its view."""
        return self.view is not None and self.finished is not None

    def get_ready(self, value: Value, holds: bool) -> Ready:
        """Return what to tell the leader about the next round."""
        assert self.view is not None, "a host without a view takes part in no round"
        assert self.finished is not None, "a host without a state takes part in no round"
        self.ready = Ready(self.me, self.view.number, self.finished + 1, value, holds)
        return self.ready

    def begin(self, begin: Begin) -> bool:
        """Take over a view. Return whether this host now finishes the round that it is ready for."""
        held, self.view, self.ready = self.ready, begin.view, None
        if self.me.slice in begin.view.donors:
            self.finished = self.decision = None
        if self.finished is None or self.finished == begin.finished:
            return False
        assert held is not None, f"{self.me} cannot finish round {begin.finished}: {self.hello}"
        assert held.round == begin.finished, f"{self.me} cannot finish round {begin.finished}: it holds {held.round}"
        self.finished, self.decision = begin.finished, begin.decision
        return True

    def decide(self, decided: Decided) -> bool:
        """Finish the round if the decision belongs to this host's view. Return whether it does."""
        if not self.view or decided.view != self.view.number:
            return False
        assert self.ready is not None, f"{self.me} is not ready for round {decided.round}"
        assert self.ready.round == decided.round, f"{self.me} is ready for round {self.ready.round}: {decided}"
        self.finished, self.decision, self.ready = decided.round, decided.decision, None
        return True

    def receive_state(self, finished: int, decision: Value | None) -> None:
        """Count as a host with the state after `finished` rounds."""
        self.finished, self.decision, self.ready, self.refused = finished, decision, None, ()

    def refuse(self, donor: int) -> None:
        """Have no view, because the state of `donor` arrived damaged. The host then asks to join again."""
        self.refused += (donor,)
        self.view = self.finished = self.decision = self.ready = None

    def learn(self, view: View, included: bool) -> None:
        """Take note of a newer view in the register, which has no room for a state of an older one if it does not
        include this process."""
        if included:
            self.view = view
        else:
            self.view = self.finished = self.decision = self.ready = None

    def successors(self, lost: Iterable[int]) -> list[HostId]:
        """Return the hosts that may register the next view, in order, if the slices `lost` cannot."""
        gone = set(lost)
        return [HostId(one, 0) for one in self.view.slices if one not in gone] if self.view else []


@dataclass
class Leader:
    """The first host of a slice, while it makes views and decides their rounds."""

    me: HostId
    hosts_per_slice: int
    previous: View
    """The view whose hosts report to it: one that lost its leader, or one that its slice registered alone (rule 6)."""
    awaited: set[int]
    """Slices to wait for before its first view."""
    decide: Decide
    view: View | None = None
    """The newest view that it registered. `None` before the first."""
    pending: View | None = None
    """The view that it is about to register."""
    finished: int = 0
    decision: Value | None = None
    hosts: dict[HostId, Hello] = field(default_factory=dict[HostId, Hello])
    """What each connected host knows."""
    ready: dict[HostId, Ready] = field(default_factory=dict[HostId, Ready])
    resigned: bool = False
    donations: int = 0

    def hear(self, hello: Hello) -> bool:
        """Take in a host that has connected. Return whether it is welcome; if not, there is a newer view."""
        reports = self.view is None and self.pending is None and hello.view == self.previous.number
        welcome = not self.resigned and (reports or hello.finished is None)
        if welcome:
            self.hosts[hello.host] = hello
        return welcome

    def lose(self, host: HostId) -> None:
        """The connection to a host has ended."""
        self.hosts.pop(host, None)
        self.ready.pop(host, None)

    def miss(self, slices: Iterable[int]) -> None:
        """Wait no longer for these slices, because they are lost or late."""
        self.awaited -= set(slices)

    def listen(self, ready: Ready) -> Decided | None:
        """A host is ready. Return the decision if it was the last one."""
        if not self.view or self.pending or ready.view != self.view.number or ready.host not in self.hosts:
            return None
        self.ready[ready.host] = ready
        if set(self.ready) != set(self.view.hosts(self.hosts_per_slice)):
            return None
        self._finish(self.ready)
        return Decided(self.view.number, self.finished, self.decision or {})

    def receive(self, host: HostId) -> None:
        """A host of a joining slice has the state."""
        if hello := self.hosts.get(host):
            self.hosts[host] = replace(hello, finished=self.finished)

    def propose(self) -> View | None:
        """Return the view to register now. `None` without a reason for one, or while hosts have still to report."""
        if self.resigned or self.pending:
            return None
        number = self._latest.number
        if self.me.slice not in self._slices(lambda hello: hello.view == number and hello.finished is not None):
            # Before the first view, it may still have to report. Later, a host of its own slice is lost.
            self.resigned = self.view is not None
            return None
        # In the first view, only hosts with a state stay. Later, those that are joining stay too.
        stay = self._slices(lambda hello: hello.view == number and (bool(self.view) or hello.finished is not None))
        joining = self._slices(lambda hello: hello.finished is None) - stay
        if self.view is None and self.awaited - stay - joining:
            return None
        if not self._is_open:
            joining = set[int]()
        if self.view and stay == set(self.view.slices) and not joining:
            return None
        self.pending = View(
            self._latest.number + 1, tuple(sorted(stay | joining)), self.me.slice, self._donors(stay, joining)
        )
        return self.pending

    def register(self, first: bool) -> Begin | None:
        """Return how the pending view begins if it was the first of its number.

        If it was not, or if this host has lost itself because it ends, it no longer leads.
        """
        assert self.pending
        view, self.pending = self.pending, None
        if not first or self.me not in self.hosts:
            self.resigned = True
            return None
        if self.view is None:
            self._continue_from(
                [self.hosts[host] for host in view.hosts(self.hosts_per_slice) if self._has_state(host, view)]
            )
        self.view = view
        self.ready.clear()
        for host in view.hosts(self.hosts_per_slice):
            if host in self.hosts:
                finished, refused = None if host.slice in view.donors else self.finished, self.hosts[host].refused
                self.hosts[host] = Hello(host, view.number, finished, self.decision, None, refused)
        return Begin(view, self.finished, self.decision)

    def _has_state(self, host: HostId, view: View) -> bool:
        return host in self.hosts and host.slice not in view.donors

    def _continue_from(self, reports: Sequence[Hello]) -> None:
        """Apply rule 4 to what the hosts with a state have reported."""
        ahead = max(reports, key=lambda hello: hello.finished or 0)
        self.finished, self.decision = ahead.finished or 0, ahead.decision
        ready = {hello.host: hello.ready for hello in reports if hello.finished == self.finished and hello.ready}
        if len(ready) == len(reports) and all(one.holds for one in ready.values()):
            self._finish(ready)

    def _finish(self, ready: Mapping[HostId, Ready]) -> None:
        self.finished += 1
        self.decision = self.decide({host: one.value for host, one in ready.items()})
        self.ready.clear()

    def _donors(self, stay: set[int], joining: set[int]) -> dict[int, int]:
        stateless = {host.slice for host, hello in self.hosts.items() if hello.finished is None} & stay
        givers = sorted(stay - stateless)
        donors: dict[int, int] = {}
        for one in sorted(joining | stateless):
            donors[one] = self._donor(one, givers)
            self.donations += 1
        return donors

    def _donor(self, one: int, givers: Sequence[int]) -> int:
        """Return the donor of slice `one`: the next of those that it has refused least often."""
        refusals = Counter[int]()
        for host, hello in self.hosts.items():
            if host.slice == one:
                refusals |= Counter(hello.refused)
        fewest = min(refusals[giver] for giver in givers)
        least = [giver for giver in givers if refusals[giver] == fewest]
        return STORAGE if fewest >= TRIES else least[self.donations % len(least)]

    @property
    def strangers(self) -> list[HostId]:
        """Hosts with a state that are not in the newest view. Their connections are to be ended, so that they join."""
        if self.view is None:
            return []
        return [
            host for host, hello in self.hosts.items() if hello.finished is not None and hello.view != self.view.number
        ]

    @property
    def _latest(self) -> View:
        return self.view or self.previous

    @property
    def _is_open(self) -> bool:
        """Whether slices may join now. The decision of a round says so, because states are equal only between steps."""
        if self.view is None and any(hello.ready for hello in self.hosts.values()):
            return False
        return self.decision is None or bool(self.decision.get(OPEN, True))

    def _slices(self, accepts: Callable[[Hello], bool]) -> set[int]:
        """Return the slices all of whose hosts are connected and accepted."""
        accepted = Counter(host.slice for host, hello in self.hosts.items() if accepts(hello))
        return {one for one, count in accepted.items() if count == self.hosts_per_slice}

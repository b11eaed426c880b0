"""All orders of what can happen to a group of slices of one host each: a model of processes, connections and storage
around the real state machines of `workloads.group.protocol`.

A state of the model is pickled, and every possible next event is applied to a copy of it.
"""

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, field

from workloads.group.protocol import OPEN, Begin, Decided, Hello, Leader, Member, Ready, Value
from workloads.group.view import STORAGE, HostId, View

type Sum = tuple[int, tuple[int, ...]]
"""A round and the slices whose gradients are in its sum."""


def decide(values: object) -> Value:
    return {OPEN: True}


@dataclass
class Process:
    """The process of one slice."""

    slice: int
    incarnation: int
    member: Member
    leader: Leader | None = None
    target: int | None = None
    """Slice whose process it is connected to."""
    up: list[Hello | Ready] = field(default_factory=list[Hello | Ready])
    down: list[Begin | Decided] = field(default_factory=list[Begin | Decided])
    avoids: set[int] = field(default_factory=set[int])
    """Slices that it could not reach in its view."""
    sum: Sum | None = None
    """The sum that it holds for the next round."""
    applied: tuple[Sum, ...] = ()
    """Sums of the rounds that it has finished."""

    @property
    def id(self) -> tuple[int, int]:
        return self.slice, self.incarnation


@dataclass
class World:
    """Everything that there is."""

    slices: int
    rounds: int
    """Rounds after which nobody goes on."""
    crashes: int
    """Crashes that may still happen."""
    cuts: int
    """Pairs of slices that may still be cut off from each other."""
    returns: int
    damages: int
    """States that may still arrive damaged from another slice."""
    processes: dict[int, Process] = field(default_factory=dict[int, Process])
    cut: set[frozenset[int]] = field(default_factory=set[frozenset[int]])
    register: list[tuple[View, dict[int, int]]] = field(default_factory=list[tuple[View, dict[int, int]]])
    """Registered views with the incarnation of each slice."""
    given: set[tuple[int, int, int]] = field(default_factory=set[tuple[int, int, int]])
    """Contributions: view, round and slice."""
    incarnations: int = 0
    lineage: int = 0
    done: dict[tuple[int, int], Sum] = field(default_factory=dict[tuple[int, int], Sum])
    """The sum of each finished round, which must be the same for everybody, by the checkpoint it continues from."""

    @classmethod
    def begun(cls, slices: int, rounds: int, crashes: int, cuts: int, returns: int, damages: int = 0) -> "World":
        """Return a group of all slices in which no round is finished."""
        world = cls(slices, rounds, crashes, cuts, returns, damages)
        view = View(1, tuple(range(slices)), 0)
        for one in range(slices):
            world.start(one)
        world.register.append((view, {one: 0 for one in range(slices)}))
        for process in world.processes.values():
            process.member.view, process.member.finished, process.target = view, 0, 0
        leader = Leader(HostId(0, 0), 1, view, set(), decide, view=view)
        leader.hosts = {host: Hello(host, 1, 0, None, None) for host in view.hosts(1)}
        world.processes[0].leader = leader
        return world

    def start(self, one: int) -> None:
        self.processes[one] = Process(one, self.incarnations, Member(HostId(one, 0)))

    def reachable(self, a: int, b: int) -> bool:
        return b in self.processes and frozenset((a, b)) not in self.cut

    @property
    def newest(self) -> tuple[View, dict[int, int]]:
        return self.register[-1]

    @property
    def settled(self) -> bool:
        """Whether all processes that the newest view's leader can reach are in it, and have finished all rounds."""
        view, incarnations = self.newest
        reach = {one for one in self.processes if one == view.led_by or self.reachable(one, view.led_by)}
        return view.led_by in reach and all(
            self.processes[one].member.view == view
            and incarnations.get(one) == self.processes[one].incarnation
            and self.processes[one].member.finished == self.rounds
            for one in reach
        )

    def events(self) -> Iterator[tuple[str, ...]]:
        """Yield everything that can happen next."""
        for one, process in self.processes.items():
            if process.target is None:
                yield "seek", str(one)
            if process.up:
                yield "up", str(one)
            if process.down:
                yield "down", str(one)
            if self._can_give(process):
                yield "give", str(one)
            if self._can_sum(process):
                yield "sum", str(one)
            if self._can_receive(process):
                yield "transfer", str(one)
                if self.damages and not self._through_storage(process):
                    yield "damage", str(one)
            if process.leader and process.leader.pending:
                yield "register", str(one)
            if process.leader and process.leader.view is None and process.leader.awaited:
                yield "wait", str(one)
            if self.crashes:
                yield "crash", str(one)
        if self.returns:
            for one in set(range(self.slices)) - self.processes.keys():
                yield "return", str(one)
        if self.cuts:
            for a in self.processes:
                for b in self.processes:
                    if a < b and frozenset((a, b)) not in self.cut:
                        yield "cut", str(a), str(b)

    def apply(self, event: tuple[str, ...]) -> None:
        kind, one, *more = event[0], int(event[1]), *map(int, event[2:])
        if kind == "cut":
            self.cuts -= 1
            self.cut.add(frozenset((one, more[0])))
            self._disconnect(one, more[0])
        else:
            getattr(self, f"_{kind}")(one)
        for process in self.processes.values():
            if process.leader:
                process.leader.propose()
                if process.leader.resigned:
                    self._close(process)
        self._forget()

    def _forget(self) -> None:
        """Drop what can no longer matter, so that equal states are the same."""
        views = [process.member.view.number for process in self.processes.values() if process.member.view]
        self.given = {given for given in self.given if given[0] >= min(views, default=0)}
        self.done = {key: value for key, value in self.done.items() if key[0] == self.lineage}

    def _crash(self, one: int) -> None:
        self.crashes -= 1
        process = self.processes.pop(one)
        for other in self.processes.values():
            if other.target == one:
                other.target, other.up = None, []
                # What was on its way may still arrive, or not. Arriving later is the same as not crashing yet.
                other.down = []
        self._hang_up(process)

    def _hang_up(self, process: Process) -> None:
        """End the connection of a process to its leader."""
        target, process.target, process.up, process.down = process.target, None, [], []
        at = self.processes.get(target) if target is not None else None
        if at and at.leader:
            at.leader.lose(HostId(process.slice, 0))

    def _return(self, one: int) -> None:
        self.returns -= 1
        self.incarnations += 1
        self.start(one)

    def _disconnect(self, a: int, b: int) -> None:
        for one, other in ((a, b), (b, a)):
            if (process := self.processes.get(one)) and process.target == other:
                self._hang_up(process)

    def _close(self, process: Process) -> None:
        """A leader that no longer leads ends its connections."""
        process.leader = None
        for other in self.processes.values():
            if other.target == process.slice:
                other.target, other.up, other.down = None, [], []

    def _seek(self, one: int) -> None:
        """Find whom to follow, as `workloads.group.control` does."""
        process = self.processes[one]
        if self.register:
            view, incarnations = self.newest
            mine = process.member.view.number if process.member.view else 0
            if view.number > mine:
                included = incarnations.get(one) == process.incarnation
                process.avoids = set()
                # A host without a view, as after it has refused a state, waits for the next one.
                if process.member.view:
                    process.member.learn(view, included)
                if not included:
                    process.sum, process.applied = None, ()
        view = self.newest[0]
        for target in (view.led_by, *view.slices):
            if target in process.avoids:
                continue
            if target == one and process.member.finished is not None and not process.leader and view.led_by != one:
                process.leader = Leader(HostId(one, 0), 1, view, set(view.slices) - process.avoids - {one}, decide)
            if not self.reachable(one, target) and target != one:
                process.avoids.add(target)
                continue
            at = self.processes[target]
            if at.leader and at.leader.hear(process.member.hello):
                process.target = target
                return
            if target == one or not at.leader:
                process.avoids.add(target)
        self._found(process)
        process.avoids = set()

    def _found(self, process: Process) -> None:
        """Continue alone from a checkpoint if nobody of the newest view has a state."""
        view, incarnations = self.newest
        alive = [
            one
            for one in view.slices
            if one in self.processes
            and self.processes[one].incarnation == incarnations[one]
            and self.processes[one].member.finished is not None
        ]
        if alive or process.member.finished is not None:
            return
        self.lineage += 1
        begun = View(view.number + 1, (process.slice,), process.slice)
        self.register.append((begun, {process.slice: process.incarnation}))
        process.member.view, process.member.finished = begun, 0
        process.applied = ()
        waits = set(self.processes) - {process.slice}
        process.leader = Leader(HostId(process.slice, 0), 1, begun, waits, decide)

    def _wait(self, one: int) -> None:
        leader = self.processes[one].leader
        assert leader
        leader.miss(leader.awaited)

    def _up(self, one: int) -> None:
        process = self.processes[one]
        message = process.up.pop(0)
        leader = self.processes[process.target].leader if process.target is not None else None
        if leader and isinstance(message, Ready) and (decided := leader.listen(message)):
            self._broadcast(leader, decided)

    def _register(self, one: int) -> None:
        leader = self.processes[one].leader
        assert leader
        assert leader.pending
        view = leader.pending
        first = view.number == self.newest[0].number + 1
        if first:
            self.register.append((view, {each: self._incarnation_at(leader, each) for each in view.slices}))
        begin = leader.register(first)
        if begin:
            self._broadcast(leader, begin)
            for host in leader.strangers:
                self._hang_up(self.processes[host.slice])

    def _incarnation_at(self, leader: Leader, one: int) -> int:
        connected = HostId(one, 0) in leader.hosts
        return self.processes[one].incarnation if connected and one in self.processes else -1

    def _broadcast(self, leader: Leader, message: Begin | Decided) -> None:
        for process in self.processes.values():
            if process.target == leader.me.slice and process.slice in (leader.view or leader.previous).slices:
                process.down.append(message)

    def _down(self, one: int) -> None:
        process = self.processes[one]
        message = process.down.pop(0)
        if isinstance(message, Begin):
            process.avoids = set()
            if process.member.begin(message):
                self._finish(process)
            if process.member.finished is None:
                process.applied = ()
            process.sum = None
        elif process.member.decide(message):
            self._finish(process)

    def _finish(self, process: Process) -> None:
        assert process.sum, "only who holds a sum can finish a round"
        finished, process.sum = process.sum, None
        process.applied += (finished,)
        number = len(process.applied)
        assert number == process.member.finished == finished[0]
        assert self.done.setdefault((self.lineage, number), finished) == finished, (
            f"round {number} is finished with the gradients of {finished} and of {self.done[self.lineage, number]}"
        )

    def _can_give(self, process: Process) -> bool:
        member = process.member
        if not member.takes_part or member.view is None or member.finished is None or member.finished >= self.rounds:
            return False
        return not member.ready and (member.view.number, member.finished + 1, process.slice) not in self.given

    def _give(self, one: int) -> None:
        member = self.processes[one].member
        assert member.view
        assert member.finished is not None
        self.given.add((member.view.number, member.finished + 1, one))

    def _can_sum(self, process: Process) -> bool:
        member = process.member
        if process.target is None or member.ready or not member.view or member.finished is None:
            return False
        key = member.view.number, member.finished + 1
        return all((*key, one) in self.given for one in member.view.slices)

    def _sum(self, one: int) -> None:
        process = self.processes[one]
        view, finished = process.member.view, process.member.finished
        assert view
        assert finished is not None
        process.sum = (finished + 1, view.slices)
        process.up.append(process.member.get_ready({}, holds=True))

    def _can_receive(self, process: Process) -> bool:
        view = process.member.view
        if not view or process.member.finished is not None or process.slice not in view.donors:
            return False
        donor = self.processes.get(self._giver(process, view))
        return bool(donor and donor.member.view == view and donor.member.finished is not None)

    def _through_storage(self, process: Process) -> bool:
        return bool(process.member.view and process.member.view.donors[process.slice] == STORAGE)

    def _giver(self, process: Process, view: View) -> int:
        """Return the slice whose state a process gets, which is the leader's if it comes through storage."""
        return view.led_by if self._through_storage(process) else view.donors[process.slice]

    def _damage(self, one: int) -> None:
        """A state arrives damaged, so that the process leaves the view and joins again."""
        self.damages -= 1
        process = self.processes[one]
        assert process.member.view
        process.member.refuse(process.member.view.donors[one])
        process.sum, process.applied = None, ()
        self._hang_up(process)

    def _transfer(self, one: int) -> None:
        process = self.processes[one]
        assert process.member.view
        donor = self.processes[self._giver(process, process.member.view)]
        assert donor.member.finished is not None
        process.member.receive_state(donor.member.finished, donor.member.decision)
        process.applied = donor.applied
        at = self.processes.get(process.target) if process.target is not None else None
        if at and at.leader:
            at.leader.receive(HostId(one, 0))


@dataclass
class Explored:
    """All states that can be reached."""

    states: int
    settled: int
    stuck: list[tuple[str, ...]]
    """Events to a state from which no settled state can be reached any more."""


def explore(world: World) -> Explored:
    """Apply every order of events.

    Raises:
        AssertionError: two hosts finish a round differently.
    """
    first = pickle.dumps(world)
    paths: dict[bytes, tuple[bytes, tuple[str, ...]] | None] = {first: None}
    before: dict[bytes, list[bytes]] = {}
    good: list[bytes] = []
    ahead = [first]
    while ahead:
        state = ahead.pop()
        now: World = pickle.loads(state)
        if now.settled:
            good.append(state)
        for event in [*now.events()]:
            then: World = pickle.loads(state)
            try:
                then.apply(event)
            except AssertionError as error:
                raise AssertionError(f"{error} after {[*_path(paths, state), event]}") from error
            after = pickle.dumps(then)
            before.setdefault(after, []).append(state)
            if after not in paths:
                paths[after] = (state, event)
                ahead.append(after)
    reach, ahead = set(good), list(good)
    while ahead:
        for state in before.get(ahead.pop(), []):
            if state not in reach:
                reach.add(state)
                ahead.append(state)
    stuck = next((state for state in paths if state not in reach), None)
    return Explored(len(paths), len(good), [*_path(paths, stuck)] if stuck else [])


def _path(paths: dict[bytes, tuple[bytes, tuple[str, ...]] | None], state: bytes) -> list[tuple[str, ...]]:
    events: list[tuple[str, ...]] = []
    while step := paths[state]:
        state, event = step
        events.insert(0, event)
    return events

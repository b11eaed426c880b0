"""Reads the history of a run from its files.

The files are ledgers, steps, failure records, the manifest and placements (docs/how-to/metrics.md). A crash may have
cut any of them short, so the reader leaves out what it cannot read and adds a note. `goodput` and `page` interpret the
facts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any

from etils import epath

from multislice_run.exit_codes import SIGKILL, exit_name
from multislice_run.records.events import EventName
from multislice_run.records.ledger import numbered_files
from multislice_run.records.lines import FailureRecord, StepLine, parse
from multislice_run.records.reader import (
    Event,
    ProcessFailure,
    World,
    group_by_start,
    read_failures,
    read_lines,
    read_record,
    read_world,
)
from workloads.report.mesh_text import Placement, read_newest
from workloads.spec import FATAL_CODES, ExitCode, cause_order

KILLED = "KILLED"
"""Ending of an attempt if the host that ended first was killed, or recorded no end because its machine was lost."""

LAST = "no end recorded"
"""Ending of the newest attempt while it has recorded none: it is still running, or was killed."""


@dataclass(frozen=True)
class AttemptHistory:
    """One attempt of the run, on all its hosts."""

    number: int
    ledgers: dict[int, tuple[Event, ...]]
    """Events of each process."""
    steps: tuple[StepLine, ...] = ()
    failures: tuple[FailureRecord, ...] = ()
    """Failures of its hosts, oldest first."""
    followed: bool = False
    """Whether there is a later attempt."""
    host_begins: tuple[int, ...] = ()
    """Start times of the hosts that failed, in whole Unix seconds. Only for an attempt that did not open the run."""
    neighbour: "AttemptHistory | None" = None
    """The attempt whose price an attempt that did not open the run uses."""
    failed_attempt: tuple[str, int] | None = None
    """`attempt` of an attempt that ended before it opened the run."""

    @property
    def opened(self) -> bool:
        return not self.host_begins

    @property
    def leader(self) -> tuple[Event, ...]:
        return self.ledgers.get(0, ())

    def last(self, name: str) -> Event | None:
        """The leader's latest event of that name."""
        return next((event for event in reversed(self.leader) if event.name == name), None)

    @property
    def restored_locally(self) -> Event | None:
        """The event of a start from the memory of the pods, and not from a checkpoint."""
        return self.last(EventName.RESTORED_LOCALLY)

    @cached_property
    def usd_per_hour(self) -> float | None:
        """Price of the slices that this attempt runs on. `None` if unknown."""
        if self.neighbour:
            return self.neighbour.usd_per_hour
        price = self.begin.facts.get("usd_per_hour") if self.begin else None
        if price is None:
            return None
        # The recorded price is for all slices that the job asks for.
        there, asked = self.slices
        return price * min(there, asked) / asked if there and asked else price

    @property
    def slices(self) -> tuple[int, int]:
        """Number of slices that this attempt runs on, and that the job asks for. 0: unknown."""
        facts = self.begin.facts if self.begin else {}
        return facts.get("slices") or 0, facts.get("asked_slices") or 0

    @property
    def begin(self) -> Event | None:
        """The event `start` of any host. All hosts record the same facts that matter here."""
        return next(filter(None, map(_begin_of, self.ledgers.values())), None)

    @cached_property
    def attempt(self) -> tuple[str, int] | None:
        """The submission and its number of restarts before this attempt. `None` if no host recorded it."""
        return (self.begin.facts["run_id"], self.begin.facts["restart_attempt"]) if self.begin else self.failed_attempt

    @property
    def submission(self) -> str | None:
        """The submission that this attempt belongs to. `None` if no host recorded it."""
        found = self.failed_attempt
        return self.begin.facts.get("run_id") if self.begin else found[0] if found else None

    @cached_property
    def began(self) -> tuple[float, float]:
        """When the first and the last host began. A host that did not record this counts from its first event."""
        first = [event for events in self.ledgers.values() for event in events[:1]]
        recorded = [event.facts.get("began") if event.name == EventName.START else None for event in first]
        times = [event.time if time is None else time for event, time in zip(first, recorded, strict=True)]
        times = times or [step.time - step.step_seconds for step in self.steps[:1]] or self.host_begins
        return (min(times), max(times)) if times else (0.0, 0.0)

    @cached_property
    def ended(self) -> float:
        """Time of its last known event, step or failure."""
        found = chain(*self.ledgers.values(), self.steps, self.failures)
        return max((each.time for each in found), default=float(min(self.host_begins, default=0)))

    def has_failure(self, ended: ProcessFailure) -> bool:
        """Whether that failure ended a process of this attempt.

        A job that was evicted and continues has several attempts with the same number of restarts. The start time of
        the host distinguishes them. A supervisor that records the end of a process knows only when it started it. A
        host without a ledger belongs to the attempt that the other hosts were in while it ran.
        """
        if self.attempt and self.attempt != (ended.run_id, ended.attempt):
            return False
        begins = filter(None, map(_begin_of, self.ledgers.values()))
        own = [event.facts.get("began") for event in begins if event.facts.get("host") == ended.failure.host]
        if known := [int(began) for began in own if began is not None]:
            return any(ended.began <= began <= ended.failure.time for began in known)
        return ended.began <= self.ended and self.began[0] <= ended.failure.time

    @cached_property
    def ending(self) -> str:
        """Name of the exit code of the host that ended first. A host that lost another one did not end first."""
        if self.lost_hosts:
            return KILLED
        if self.failures:
            code = self._first.code
            if code == SIGKILL:
                return KILLED
            return ExitCode(code).name if code in list(ExitCode) else f"exit code {code}"
        if stop := self.last(EventName.STOP):
            return str(stop.facts.get("code", LAST))
        return KILLED if self.followed else LAST

    @property
    def _first(self) -> FailureRecord:
        return min(self.failures, key=lambda failure: cause_order(failure.code, failure.time))

    @cached_property
    def lost_hosts(self) -> tuple[str, ...]:
        """Hosts that may have ended the attempt without a record, because others only recorded that they lost one.

        They are those that recorded no end. Empty if there is another cause.
        """
        codes = {exit_name(failure.code) for failure in self.failures}
        hosts: list[str | None] = []
        for _, events in sorted(self.ledgers.items()):
            stops = [event for event in events if event.name == EventName.STOP]
            codes |= {str(stop.facts.get("code")) for stop in stops}
            if not stops and (begin := _begin_of(events)):
                hosts.append(begin.facts.get("host"))
        if codes != {ExitCode.PEER_LOST.name}:
            return ()
        failed = {failure.host for failure in self.failures}
        return tuple(host for host in hosts if host and host not in failed)

    @cached_property
    def cause(self) -> str:
        """First line of the reason why it ended. Empty if it finished."""
        if self.lost_hosts:
            return f"{' or '.join(self.lost_hosts)}: ended without a record, so it was killed or its machine was lost"
        if self.failures:
            return f"{self._first.host}: {(self._first.cause.splitlines() or [''])[0]}"
        stop = self.last(EventName.STOP)
        if stop is None or stop.facts.get("cause") == "done":
            return ""
        return f"{stop.facts.get('cause')}: {(str(stop.facts.get('message', '')).splitlines() or [''])[0]}"


def _begin_of(events: Sequence[Event]) -> Event | None:
    return next((event for event in events if event.name == EventName.START), None)


@dataclass(frozen=True)
class History:
    """Everything that a run's files say."""

    folder: epath.Path
    manifest: dict[str, Any]
    starts: tuple[AttemptHistory, ...]
    """Attempts that opened the run."""
    placement: Placement | None
    notes: tuple[str, ...] = ()
    """Names of what could not be read, with the reasons."""
    unopened: tuple[AttemptHistory, ...] = ()
    """Attempts that failed before they opened the run. Each has the number of the next one that opened it."""
    world: World | None = None
    """The newest attempt that the pods of the last submission agreed on. `None` if their pods do not stay."""

    @cached_property
    def attempts(self) -> tuple[AttemptHistory, ...]:
        """All attempts, oldest first."""
        return tuple(sorted([*self.starts, *self.unopened], key=lambda start: (start.number, start.opened)))

    def events(self, name: str) -> tuple[Event, ...]:
        """The leader's events of that name, from the first attempt to the last."""
        return tuple(event for start in self.starts for event in start.leader if event.name == name)

    @property
    def over(self) -> bool:
        """Whether no attempt follows: the newest one is done, ended with an error that a restart cannot mend, or used
        up the restarts."""
        final = {ExitCode.DONE.name, *(code.name for code in FATAL_CODES)}
        return self.used_up or (bool(self.attempts) and self.attempts[-1].ending in final)

    @property
    def used_up(self) -> bool:
        """Whether processes failed more often than the job may restart."""
        return self.world is not None and self.world.ended == ExitCode.RESTARTS_USED_UP

    @property
    def job(self) -> str:
        """Name of the job. `a job` if the manifest is missing."""
        return str(self.manifest.get("spec", {}).get("name", "a job"))


def read_history(run: epath.Path) -> History:
    """Return the history of the run in the folder `run`, which is `runs/<run>` below a storage path."""
    notes: list[str] = []
    opened = _read_opened(run, notes)
    run_ids = {run.name, *(start.attempt[0] for start in opened if start.attempt)}
    ends: dict[int, list[FailureRecord]] = {}
    early: list[ProcessFailure] = []
    for ended in read_failures(run.parent.parent, notes, run_ids):
        if owner := next((start for start in opened if start.has_failure(ended)), None):
            ends.setdefault(owner.number, []).append(ended.failure)
        else:
            early.append(ended)
    groups = group_by_start(early, [start.began[0] for start in opened])
    unopened = tuple(_unopened_start(hosts, opened) for hosts in groups)
    last = max((start.number for start in [*opened, *unopened]), default=0)
    starts = tuple(
        replace(start, failures=tuple(ends.get(start.number, ())), followed=start.number < last) for start in opened
    )
    manifest = read_record(run / "manifest.json", _manifest, notes)
    found = History(run, manifest or {}, starts, read_newest(run / "placement", notes), unopened=unopened)
    submission = found.attempts[-1].submission if found.attempts else None
    world = read_world(run.parent.parent, submission, notes) if submission else None
    return replace(found, world=world, notes=tuple(notes))


def _read_opened(run: epath.Path, notes: list[str]) -> list[AttemptHistory]:
    """Return the attempts that opened the run, without their failures."""
    ledgers: dict[int, dict[int, tuple[Event, ...]]] = {}
    for (start, process), path in numbered_files(run / "ledger")[0].items():
        ledgers.setdefault(start, {})[process] = tuple(read_lines(path, Event.parse, notes))
    steps: dict[int, list[StepLine]] = {}
    for (start, _), path in numbered_files(run / "steps")[0].items():
        steps.setdefault(start, []).extend(read_lines(path, partial(parse, StepLine), notes))
    found = [
        AttemptHistory(number, ledgers.get(number, {}), tuple(steps.get(number, ())))
        for number in sorted({*ledgers, *steps})
    ]
    # A call has neither, nor has a run before its first step.
    trained = any(event.facts.get("step") for start in found for event in chain(*start.ledgers.values()))
    for folder, expected in (("ledger", bool(steps)), ("steps", trained)):
        if expected and not (run / folder).exists():
            notes.append(f"{folder}/ is missing")
    return found


def _manifest(document: Any) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("spec", {}), dict):
        raise ValueError("expected an object with the specification of the job")
    return document


def _unopened_start(hosts: Sequence[ProcessFailure], opened: Sequence[AttemptHistory]) -> AttemptHistory:
    begins = tuple(host.began for host in hosts)
    following = next((start for start in opened if start.began[0] > begins[0]), None)
    neighbour = following or next(reversed(opened), None)
    number = following.number if following else neighbour.number + 1 if neighbour else 0
    return AttemptHistory(
        number,
        {},
        failures=tuple(sorted((host.failure for host in hosts), key=lambda failure: failure.time)),
        followed=following is not None,
        host_begins=begins,
        neighbour=neighbour,
        failed_attempt=(hosts[0].run_id, hosts[0].attempt),
    )

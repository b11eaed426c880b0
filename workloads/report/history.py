"""A run as its files tell it.

Owns the reading of ledgers, steps, failure records, manifest and placement (docs/metrics.md). A crash may have cut any
of them short: what cannot be read is left out and noted. What the facts mean is up to `goodput` and `page`.
"""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from etils import epath

from workloads.report.placement import Placement
from workloads.report.records import Failure, Manifest, StepLine, Told, believed, by_start, must_hold, read_failures
from workloads.spec import ExitCode

KILLED = "KILLED"
"""How a start ended that left no word: killed, or its machine lost."""

LAST = "no end recorded"
"""How the newest start stands that left no word: it runs, or was killed."""

_START_FILE = re.compile(r"[0-9]+\.json")


@dataclass(frozen=True)
class Event:
    """One line of a ledger."""

    time: float
    name: str
    facts: dict[str, Any]


@dataclass(frozen=True)
class Step:
    """One line of a start's steps."""

    step: int
    time: float
    seconds: float
    host_seconds: float
    loss: float | None
    skipped: bool
    tokens_per_second: float | None
    mfu: float | None
    peak_bytes: int | None


@dataclass(frozen=True)
class Start:
    """One start of the run, by all its hosts."""

    number: int
    ledgers: dict[int, tuple[Event, ...]]
    """By process."""
    steps: tuple[Step, ...] = ()
    failures: tuple[Failure, ...] = ()
    """Of the hosts where something failed, first one first."""
    followed: bool = False
    """Whether there is a later start."""
    host_begins: tuple[int, ...] = ()
    """Of a start that ended before it opened the run: the seconds in which its hosts began, as far as they failed."""
    neighbour: "Start | None" = None
    """The start whose price such a one has."""

    @property
    def opened(self) -> bool:
        """Whether it opened the run."""
        return not self.host_begins

    @property
    def leader(self) -> tuple[Event, ...]:
        return self.ledgers.get(0, ())

    def last(self, name: str) -> Event | None:
        """The leader's latest event of that name."""
        return next((event for event in reversed(self.leader) if event.name == name), None)

    @cached_property
    def usd_per_hour(self) -> float | None:
        """Of the slices that this start runs on; None: unknown."""
        if self.neighbour:
            return self.neighbour.usd_per_hour
        begin = self.begin
        price = begin.facts.get("usd_per_hour") if begin else None
        if begin is None or price is None:
            return None
        # The price is that of all slices that the job asks for.
        there, asked = begin.facts.get("slices"), begin.facts.get("asked_slices")
        return price * min(there, asked) / asked if there and asked else price

    @property
    def begin(self) -> Event | None:
        """The word `start` of any host, for it is the same in all that matters."""
        return next((event for events in self.ledgers.values() for event in events if event.name == "start"), None)

    @cached_property
    def attempt(self) -> tuple[str, int] | None:
        """The submission and its number of restarts before this start; None if no host says."""
        return (self.begin.facts["run_id"], self.begin.facts["restart_attempt"]) if self.begin else None

    @cached_property
    def began(self) -> tuple[float, float]:
        """When the first and the last host began; their first events where they do not say."""
        first = [event for events in self.ledgers.values() for event in events[:1]]
        told = [event.facts.get("began") if event.name == "start" else None for event in first]
        times = [event.time if time is None else time for event, time in zip(first, told, strict=True)]
        times = times or [step.time - step.seconds for step in self.steps[:1]] or self.host_begins
        return (min(times), max(times)) if times else (0.0, 0.0)

    @cached_property
    def ended(self) -> float:
        """The last that is known of it."""
        heard = [event.time for events in self.ledgers.values() for event in events]
        heard += [step.time for step in self.steps]
        return max([*heard, *(failure.time for failure in self.failures)], default=self.began[0])

    def tells(self, told: Told) -> bool:
        """Whether that failure ended a process of this start.

        A job that was evicted and goes on has several starts of one attempt. What a host began with tells them apart;
        where it left no ledger, it is of the start that the others were in while it lived.
        """
        if self.attempt and self.attempt != (told.run_id, told.failure.attempt):
            return False
        begins = [event.facts for events in self.ledgers.values() for event in events if event.name == "start"]
        own = [facts.get("began") for facts in begins if facts.get("host") == told.failure.host]
        if known := [began for began in own if began is not None]:
            return told.began in map(int, known)
        return told.began <= self.ended and self.began[0] <= told.failure.time

    @cached_property
    def ending(self) -> str:
        """Name of the exit code that says why it ended."""
        if self.failures:
            code = self.failures[0].code
            return ExitCode(code).name if code in list(ExitCode) else f"exit code {code}"
        stop = self.last("stop")
        if stop is None:
            return KILLED if self.followed else LAST
        return str(stop.facts.get("code", LAST))

    @cached_property
    def cause(self) -> str:
        """The first line of why it ended."""
        if self.failures:
            first = self.failures[0]
            return f"{first.host}: {(first.cause.splitlines() or [''])[0]}"
        stop = self.last("stop")
        if stop is None or stop.facts.get("cause") == "done":
            return ""
        return f"{stop.facts.get('cause')}: {(str(stop.facts.get('message', '')).splitlines() or [''])[0]}"


@dataclass(frozen=True)
class History:
    """Everything that is known of a run."""

    folder: epath.Path
    manifest: dict[str, Any]
    starts: tuple[Start, ...]
    """Those that opened the run."""
    placement: Placement | None
    notes: tuple[str, ...] = ()
    """What could not be read."""
    unopened: tuple[Start, ...] = ()
    """Those that failed before; the number of each is that of the next one that opened the run."""

    @cached_property
    def tried(self) -> tuple[Start, ...]:
        """All starts, the first one first."""
        return tuple(sorted([*self.starts, *self.unopened], key=lambda start: (start.number, start.opened)))

    def events(self, name: str) -> tuple[Event, ...]:
        """The leader's events of that name, start by start."""
        return tuple(event for start in self.starts for event in start.leader if event.name == name)

    @property
    def job(self) -> str:
        """Its name, as far as it is known."""
        return str(self.manifest.get("spec", {}).get("name", "a job"))


def read_history(run: epath.Path) -> History:
    """The history of the run in folder `run`, `runs/<run>` below a storage path."""
    return _Reader(run).history()


@dataclass
class _Reader:
    run: epath.Path
    notes: list[str] = field(default_factory=list)

    def history(self) -> History:
        ledgers = self._ledgers()
        steps = self._steps()
        bare = [
            Start(number, ledgers.get(number, {}), tuple(steps.get(number, ())))
            for number in sorted({*ledgers, *steps})
        ]
        starts, unopened = self._ends(bare)
        manifest = believed(self.run / "manifest.json", Manifest, self.notes)
        facts = manifest.model_dump() if manifest else {}
        return History(self.run, facts, starts, self._placement(), tuple(self.notes), unopened)

    def _ledgers(self) -> dict[int, dict[int, tuple[Event, ...]]]:
        found: dict[int, dict[int, tuple[Event, ...]]] = {}
        for (start, process), path in self._files("ledger"):
            found.setdefault(start, {})[process] = self._events(path)
        return found

    def _events(self, path: epath.Path) -> tuple[Event, ...]:
        lines = self._lines(path, must_hold)
        return tuple(Event(line.pop("time"), line.pop("event"), line) for line in lines)

    def _steps(self) -> dict[int, list[Step]]:
        found: dict[int, list[Step]] = {}
        for (start, _), path in self._files("steps"):
            lines = self._lines(path, StepLine.model_validate)
            found.setdefault(start, []).extend(_step(StepLine.model_validate(line)) for line in lines)
        return found

    def _files(self, folder: str) -> list[tuple[tuple[int, int], epath.Path]]:
        """The files `<number>-<number>.jsonl`, in order."""
        where = self.run / folder
        if not where.exists():
            self.notes.append(f"{folder}/ is missing")
            return []
        files: dict[tuple[int, int], epath.Path] = {}
        for path in where.iterdir():
            first, _, second = path.name.removesuffix(".jsonl").partition("-")
            if path.name.endswith(".jsonl") and first.isdecimal() and second.isdecimal():
                files[int(first), int(second)] = path
        return sorted(files.items())

    def _lines(self, path: epath.Path, believed: Callable[[Any], object]) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
            try:
                line = json.loads(text)
                believed(line)
                yield line
            except (ValueError, RecursionError):
                self.notes.append(f"{path.parent.name}/{path.name}, line {number} cannot be read: {text[:40]!r}")

    def _ends(self, starts: Sequence[Start]) -> tuple[tuple[Start, ...], tuple[Start, ...]]:
        """The starts with what they failed of, and those that failed before they opened the run."""
        run_ids = {self.run.name, *(start.attempt[0] for start in starts if start.attempt)}
        ends: dict[int, list[Failure]] = {}
        early: list[Told] = []
        for told in read_failures(self.run.parent.parent, self.notes, run_ids):
            if owner := next((start for start in starts if start.tells(told)), None):
                ends.setdefault(owner.number, []).append(told.failure)
            else:
                early.append(told)
        unopened = tuple(_unopened(told, starts) for told in by_start(early, [start.began[0] for start in starts]))
        last = max((start.number for start in [*starts, *unopened]), default=0)
        ended = [
            replace(start, failures=tuple(ends.get(start.number, ())), followed=start.number < last) for start in starts
        ]
        return tuple(ended), unopened

    def _placement(self) -> Placement | None:
        folder = self.run / "placement"
        paths = [path for path in folder.iterdir() if _START_FILE.fullmatch(path.name)] if folder.exists() else []
        newest = max(paths, key=lambda path: int(path.stem), default=None)
        return believed(newest, Placement, self.notes) if newest else None


def _unopened(hosts: Sequence[Told], opened: Sequence[Start]) -> Start:
    begins = tuple(told.began for told in hosts)
    following = next((start for start in opened if start.began[0] > begins[0]), None)
    neighbour = following or next(reversed(opened), None)
    number = following.number if following else neighbour.number + 1 if neighbour else 0
    failures = sorted((told.failure for told in hosts), key=lambda failure: failure.time)
    return Start(
        number, {}, failures=tuple(failures), followed=following is not None, host_begins=begins, neighbour=neighbour
    )


def _step(line: StepLine) -> Step:
    peaks = [peak for peak in line.device_peak_bytes_in_use or () if peak]
    return Step(
        line.step,
        line.time,
        line.step_seconds,
        line.host_seconds,
        line.loss,
        line.skipped,
        line.tokens_per_second,
        line.mfu,
        max(peaks, default=None),
    )

"""A run as its files tell it.

Owns the reading of ledgers, steps, failure records, manifest and placement (docs/metrics.md). A crash may have cut any
of them short: what cannot be read is left out and noted. What the facts mean is up to `goodput` and `page`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from etils import epath

from workloads.report.placement import Placement
from workloads.spec import ExitCode

KILLED = "KILLED"
"""How a start ended that left no word: killed, or its machine lost."""

LAST = "no end recorded"
"""How the newest start stands that left no word: it runs, or was killed."""


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
class Failure:
    """A failure record of a host."""

    attempt: int
    host: str
    cause: str
    code: int
    time: float


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

    @property
    def leader(self) -> tuple[Event, ...]:
        return self.ledgers.get(0, ())

    def last(self, name: str) -> Event | None:
        """The leader's latest event of that name."""
        return next((event for event in reversed(self.leader) if event.name == name), None)

    @cached_property
    def began(self) -> tuple[float, float]:
        """When the first and the last host began; their first events where they do not say."""
        times = [
            float(event.facts.get("began", event.time)) for events in self.ledgers.values() for event in events[:1]
        ]
        times = times or [step.time - step.seconds for step in self.steps[:1]]
        return (min(times), max(times)) if times else (0.0, 0.0)

    @cached_property
    def ended(self) -> float:
        """The last that is known of it."""
        heard = [event.time for events in self.ledgers.values() for event in events]
        heard += [step.time for step in self.steps]
        return max([*heard, *(failure.time for failure in self.failures)], default=self.began[0])

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
    placement: Placement | None
    notes: tuple[str, ...] = ()
    """What could not be read."""


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
        numbers = sorted({*ledgers, *steps})
        starts = tuple(
            Start(
                number,
                ledgers.get(number, {}),
                tuple(steps.get(number, ())),
                self._failures(ledgers.get(number, {})),
                followed=number != numbers[-1],
            )
            for number in numbers
        )
        manifest = self._document(self.run / "manifest.json") or {}
        return History(self.run, manifest, starts, self._placement(), tuple(self.notes))

    def _ledgers(self) -> dict[int, dict[int, tuple[Event, ...]]]:
        found: dict[int, dict[int, tuple[Event, ...]]] = {}
        for (start, process), lines in self._numbered("ledger"):
            events: list[Event] = []
            for line in lines:
                facts = {name: value for name, value in line.items() if name not in ("time", "event")}
                events.append(Event(float(line["time"]), str(line["event"]), facts))
            found.setdefault(start, {})[process] = tuple(events)
        return found

    def _steps(self) -> dict[int, list[Step]]:
        found: dict[int, list[Step]] = {}
        for (start, _), lines in self._numbered("steps"):
            found.setdefault(start, []).extend(map(_step, lines))
        return found

    def _numbered(self, folder: str) -> Iterator[tuple[tuple[int, int], list[dict[str, Any]]]]:
        """The JSON lines of the files `<number>-<number>.jsonl`, in order."""
        where = self.run / folder
        if not where.exists():
            self.notes.append(f"{folder}/ is missing")
            return
        files: dict[tuple[int, int], epath.Path] = {}
        for path in where.iterdir():
            first, _, second = path.name.removesuffix(".jsonl").partition("-")
            if path.name.endswith(".jsonl") and first.isdecimal() and second.isdecimal():
                files[int(first), int(second)] = path
        for numbers, path in sorted(files.items()):
            yield numbers, list(self._lines(path, "step" if folder == "steps" else "event"))

    def _lines(self, path: epath.Path, required: str) -> Iterator[dict[str, Any]]:
        for number, text in enumerate(path.read_text().splitlines(), 1):
            try:
                line = json.loads(text)
                if {"time", required} <= line.keys():
                    yield line
                    continue
            except (ValueError, AttributeError):
                pass
            self.notes.append(f"{path.parent.name}/{path.name}, line {number} cannot be read: {text[:40]!r}")

    def _failures(self, ledgers: dict[int, tuple[Event, ...]]) -> tuple[Failure, ...]:
        """Those of the submission and attempt that `ledgers` say they belong to."""
        start = next((event for events in ledgers.values() for event in events if event.name == "start"), None)
        if start is None:
            return ()
        attempt = start.facts["restart_attempt"]
        folder = self.run.parent.parent / "failures" / str(start.facts["run_id"])
        paths = sorted(folder.glob(f"*-{attempt}.json")) if folder.exists() else []
        records = [record for path in paths if (record := self._document(path))]
        failures = [
            Failure(attempt, record["host"], record["cause"], record["code"], record["time"])
            for record in records
            if not record.get("elsewhere")
        ]
        return tuple(sorted(failures, key=lambda failure: failure.time))

    def _placement(self) -> Placement | None:
        folder = self.run / "placement"
        paths = sorted(folder.glob("*.json"), key=lambda path: int(path.stem)) if folder.exists() else []
        if not paths:
            return None
        try:
            return Placement.model_validate_json(paths[-1].read_text())
        except ValueError as fault:
            self.notes.append(f"placement/{paths[-1].name} cannot be read: {str(fault).splitlines()[0]}")
            return None

    def _document(self, path: epath.Path) -> dict[str, Any] | None:
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            self.notes.append(f"{path.name} is missing")
        except ValueError as fault:
            self.notes.append(f"{path.name} cannot be read: {fault}")
        return None


def _step(line: dict[str, Any]) -> Step:
    peaks = [peak for peak in line.get("device_peak_bytes_in_use") or () if peak]
    return Step(
        line["step"],
        float(line["time"]),
        float(line.get("step_seconds", 0)),
        float(line.get("host_seconds", 0)),
        line.get("loss"),
        bool(line.get("skipped")),
        line.get("tokens_per_second"),
        line.get("mfu"),
        max(peaks, default=None),
    )

"""Questions about a deployed stack whose answers confirm an assumption.

A question looks only at what other commands found: the checks of `doctor`, the drift, the cluster, the records of runs
and the preflight. An answer contains numbers and words of this program, but no name of a project, stack, job or person.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from cli.doctor.checks import Check, Verdict
from infra.review.preview import Drift
from infra.settings.stack import Settings
from workloads.preflight_result import QUOTED_EFFICIENCY, PreflightResult
from workloads.report.goodput import goodput
from workloads.report.history import History, Start
from workloads.report.records import Event
from workloads.spec import ExitCode

type Values = Mapping[str, float | str]


@dataclass(frozen=True)
class Found:
    """An answer."""

    holds: bool
    values: Values = field(default_factory=dict[str, float | str])
    """Numbers, and words such as the name of a kernel, by name."""


@dataclass(frozen=True)
class Evidence:
    """What other commands found out about a stack."""

    settings: Settings
    checks: tuple[Check, ...]
    """Result of `doctor`."""
    drift: Drift
    policies: int | None
    """Number of policies that protect running jobs of stacks in the cluster. None: they cannot be read."""
    histories: Mapping[str, tuple[History, ...]]
    """Runs of each training job of the stack."""
    preflights: Mapping[str, PreflightResult]
    """Results of the preflight on this machine, by job."""

    def starts(self) -> Iterator[Start]:
        """Yield all attempts that opened a run."""
        return (start for histories in self.histories.values() for history in histories for start in history.starts)


def access(evidence: Evidence) -> Found | None:
    """Return whether credentials, APIs and quota pass the checks."""
    return _passing(evidence, "credentials", "APIs", "quota")


def node_pools(evidence: Evidence) -> Found | None:
    """Return whether the slices and node pools pass the checks."""
    return _passing(evidence, "nodes")


def _passing(evidence: Evidence, *groups: Literal["credentials", "APIs", "quota", "nodes"]) -> Found | None:
    made = [check for check in evidence.checks if check.group in groups and check.verdict is not Verdict.SKIPPED]
    failed = sum(check.verdict is Verdict.FAILED for check in made)
    return Found(not failed, {"checks": len(made), "failed": failed}) if made else None


def preview(evidence: Evidence) -> Found:
    """Return whether the engine can plan the deployed stack."""
    return Found(not evidence.drift.errors, {"errors": len(evidence.drift.errors)})


def second_preview(evidence: Evidence) -> Found | None:
    """Return whether a refresh finds nothing that the last `up` did not declare."""
    drift = evidence.drift
    if drift.errors:
        return None
    changed = {"different": len(drift.objects), "pending": len(drift.pending)}
    return Found(not any(changed.values()), changed)


def policies(evidence: Evidence) -> Found | None:
    """Return whether the stack's admission policies exist."""
    found = evidence.policies
    return None if found is None else Found(found > 0, {"policies": found})


def saves(evidence: Evidence) -> Found | None:
    """Return whether a job has saved, and resumed from a save."""
    saved = sum(event.name == "CheckpointSaved" for start in evidence.starts() for event in start.leader)
    resumed = sum(_outcome(start) == "resumed" for start in evidence.starts())
    return Found(holds=True, values={"saves": saved, "resumes": resumed}) if saved else None


def steps(evidence: Evidence) -> Found | None:
    """Return whether a job has taken steps."""
    taken = sum(len(start.steps) for start in evidence.starts())
    return Found(holds=True, values={"steps": taken}) if taken else None


def memory(evidence: Evidence) -> Found | None:
    """Return whether jobs that fit according to the preflight ended without lack of memory."""
    jobs = [name for name, found in evidence.preflights.items() if found.fits and _starts(evidence, name)]
    if not jobs:
        return None
    short = sum(
        start.ending == ExitCode.OUT_OF_MEMORY.name
        for name in jobs
        for history in evidence.histories[name]
        for start in history.attempts
    )
    peaks = [found.peak_gib / found.usable_gib for found in map(evidence.preflights.__getitem__, jobs)
             if found.peak_gib and found.usable_gib]  # fmt: skip
    return Found(not short, {"out of memory": short, "largest share of memory": round(max(peaks, default=0.0), 3)})


def speed(evidence: Evidence) -> Found | None:
    """Return the estimated seconds of a step over the measured ones, which is correct within 10 %."""
    for name, found in evidence.preflights.items():
        measured = [step.seconds for start in _starts(evidence, name) for step in start.steps]
        estimate = next((step for step in found.steps if step.kernel_efficiency == QUOTED_EFFICIENCY), None)
        if estimate and measured:
            ratio = estimate.seconds / median(measured)
            seconds = {"estimated seconds": round(estimate.seconds, 4), "measured seconds": round(median(measured), 4)}
            return Found(abs(ratio - 1) <= 0.1, {**seconds, "estimated over measured": round(ratio, 3)})
    return None


def attention(evidence: Evidence) -> Found | None:
    """Return the kernel that `training.attention: auto` chose, with the time and the error of each kernel."""
    events = [event for start in evidence.starts() for event in start.leader]
    chosen = [str(event.facts["kernel"]) for event in events if event.name == "AttentionChosen"]
    if not chosen:
        return None
    values: dict[str, float | str] = {"kernel": chosen[-1]}
    for event in events:
        if event.name == "AttentionTried":
            kernel = event.facts["kernel"]
            values[f"{kernel} milliseconds"] = round(float(event.facts["milliseconds"]), 3)
            values[f"{kernel} difference"] = round(float(event.facts["difference"]), 5)
    return Found(chosen[-1] != "reference", values)


def compile_cache(evidence: Evidence) -> Found | None:
    """Return whether a later attempt of a run compiled in less than half the time of the first."""
    for histories in evidence.histories.values():
        for history in histories:
            seconds = [float(event.facts["seconds"]) for event in history.events("compile") if "seconds" in event.facts]
            if len(seconds) > 1:
                first, later = seconds[0], min(seconds[1:])
                return Found(later < first / 2, {"first seconds": round(first, 2), "later seconds": round(later, 2)})
    return None


def several_slices(evidence: Evidence) -> Found | None:
    """Return whether a job has trained on several slices."""
    slices = max(
        (int(start.begin.facts.get("slices") or 1) for start in evidence.starts() if start.begin and start.steps),
        default=0,
    )
    return Found(holds=True, values={"slices": slices}) if slices > 1 else None


def recovery(evidence: Evidence) -> Found | None:
    """Return the seconds from the end of an attempt to its replacement's first step."""
    losses = [loss for _, history in _runs(evidence) for loss in goodput(history.attempts).losses]
    restarts = [start for start in evidence.starts() if _outcome(start) == "resumed" and start.steps]
    if not restarts or not losses:
        return None
    worst = max(loss.down_seconds + loss.restart_seconds for loss in losses)
    return Found(holds=True, values={"restarts": len(restarts), "longest recovery seconds": round(worst, 1)})


def notice(evidence: Evidence) -> Found | None:
    """Return whether preempted attempts saved their last step before they ended."""
    ended = [start for start in evidence.starts() if start.ending == ExitCode.PREEMPTED.name]
    if not ended:
        return None
    last = [(start.last("save"), max((step.step for step in start.steps), default=0)) for start in ended]
    seconds = [float(save.facts.get("blocking_seconds", 0)) for save, step in last if save and _saves(save, step)]
    values = {"preempted": len(ended), "saved": len(seconds), "longest save seconds": round(max(seconds, default=0), 1)}
    return Found(len(seconds) == len(ended), values)


def _saves(save: Event, step: int) -> bool:
    return int(save.facts.get("step", 0)) >= step


def on_capacity(evidence: Evidence, kind: str) -> Found | None:
    """Return whether a job has trained that can only run on this kind of capacity."""
    jobs = [
        name
        for name in evidence.histories
        if {group.capacity.kind for group in evidence.settings.groups_of(evidence.settings.jobs[name]).values()}
        == {kind}
    ]
    taken = sum(len(start.steps) for name in jobs for start in _starts(evidence, name))
    return Found(holds=True, values={"steps": taken}) if taken else None


def _runs(evidence: Evidence) -> Iterator[tuple[str, History]]:
    return ((name, history) for name, histories in evidence.histories.items() for history in histories)


def _starts(evidence: Evidence, name: str) -> list[Start]:
    return [start for history in evidence.histories.get(name, ()) for start in history.starts]


def _outcome(start: Start) -> str:
    opened = start.last("RunStarted")
    return str(opened.facts.get("outcome", "")) if opened else ""

"""Keeps the progress of `multislice up` and `down` as frozen values, and formats it for a terminal or a log.

Times are in seconds since the epoch.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.render import WIDTH, bar, duration

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent
    from pulumi.automation.events import StepEventMetadata

_BOOKKEEPING = ("pulumi:pulumi:Stack", "pulumi:providers:")
_IN_CHART = "kubernetes:helm.sh/v4:Chart$"
_UNCHANGED = ("same", "read", "refresh")
_COLOR = re.compile(r"<\{%.*?%\}>")
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_SPINS_PER_SECOND = 8
_INDENT = 4
_RESOURCES_PER_LINE = 5
"""Number of resources that the engine finishes between two lines of a log."""


class Phase(StrEnum):
    """Part of a command, in the order in which the parts run."""

    PROGRAMS = "programs"
    CONTROL_PLANE = "control plane"
    PLAN = "plan"
    INFRASTRUCTURE = "infrastructure"
    DESTROY = "destroy"
    STOP = "stop"


UP_PHASES = (Phase.PROGRAMS, Phase.CONTROL_PLANE, Phase.PLAN, Phase.INFRASTRUCTURE)
DOWN_PHASES = (Phase.CONTROL_PLANE, Phase.DESTROY, Phase.STOP)
_ENGINE_PHASES = (Phase.PLAN, Phase.INFRASTRUCTURE, Phase.DESTROY)


@dataclass(frozen=True)
class Span:
    """Begin and end of a phase, with one line about it."""

    started: float
    ended: float | None = None
    failed: bool = False
    detail: str = ""

    def seconds(self, now: float) -> float:
        return max(0.0, (now if self.ended is None else self.ended) - self.started)


@dataclass(frozen=True)
class Resources:
    """Progress of the Pulumi engine, by URN."""

    total: int = 0
    """Number of resources in the plan. 0: not known yet."""
    active: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    """Resources in `done` that were created, updated, replaced or deleted."""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """State of a command at one moment."""

    title: str
    phases: tuple[Phase, ...]
    spans: Mapping[Phase, Span] = field(default_factory=dict[Phase, Span])
    expected: Mapping[Phase, float] = field(default_factory=dict[Phase, float])
    """Seconds that each phase is likely to take. Phases without an estimate are missing."""
    resources: Resources = Resources()

    def begin(self, phase: Phase, at: float) -> "Progress":
        """Begin a phase. A second call changes nothing."""
        return self if phase in self.spans else self._with(phase, Span(at))

    def describe(self, phase: Phase, detail: str) -> "Progress":
        return self._with(phase, replace(self.spans[phase], detail=detail))

    def end(self, phase: Phase, at: float, failed: bool = False) -> "Progress":
        """End a phase. A second call changes nothing."""
        span = self.spans[phase]
        return self if span.ended is not None else self._with(phase, replace(span, ended=at, failed=failed))

    def running(self) -> Phase | None:
        begun = [phase for phase in self.phases if phase in self.spans and self.spans[phase].ended is None]
        return begun[-1] if begun else None

    def _with(self, phase: Phase, span: Span) -> "Progress":
        return replace(self, spans={**self.spans, phase: span})


def engine(progress: Progress, phase: Phase, event: "EngineEvent") -> Progress:
    """Apply an event of the Pulumi engine. `phase` is the plan, update or destroy that is running."""
    known, error = progress.resources, ""
    if event.resource_pre_event:
        step = event.resource_pre_event.metadata
        if _counts(step) and step.urn not in known.active:
            known = replace(known, active=(*known.active, step.urn))
    elif event.res_outputs_event and _counts(step := event.res_outputs_event.metadata):
        active = tuple(urn for urn in known.active if urn != step.urn)
        changed = known.changed if step.op.value in _UNCHANGED else known.changed | {step.urn}
        known = replace(known, active=active, done=known.done | {step.urn}, changed=changed)
    elif event.diagnostic_event and event.diagnostic_event.severity == "error":
        error = event.diagnostic_event.message
    elif event.policy_event and event.policy_event.enforcement_level == "mandatory":
        error = f"{event.policy_event.policy_name}: {event.policy_event.message}"
    if error:
        known = replace(known, errors=(*known.errors, _COLOR.sub("", error).strip()))
    count = f"{len(known.done)} of {known.total}" if known.total else str(len(known.done))
    line = f"{count}: {label(known.active[-1])}" if known.active else f"{count} resources"
    return replace(progress, resources=known).describe(phase, line)


def engine_done(progress: Progress, phase: Phase) -> Progress:
    """End the engine's operation. The resources of a plan are the total of the update that follows."""
    resources = progress.resources
    count = len(resources.done.union(resources.active))
    changes = "to change" if phase is Phase.PLAN else "changed"
    progress = progress.describe(phase, f"{count} resources, {len(resources.changed)} {changes}")
    return replace(progress, resources=Resources(total=count))


def screen(progress: Progress, now: float, columns: int) -> RenderableType:
    """Return all phases, for a terminal of so many columns."""
    width = min(columns, WIDTH)
    parts: list[RenderableType] = [Text(), Text(progress.title, "bold"), Text()]
    done, total = len(progress.resources.done), progress.resources.total
    for phase in progress.phases:
        parts.append(_row(progress, phase, now, width))
        if phase is progress.running() and phase is Phase.INFRASTRUCTURE and total:
            parts.append(Padding(bar(done, total, width - _INDENT), (0, 0, 0, _INDENT)))
    return Group(*parts)


def lines(before: Progress, after: Progress) -> list[str]:
    """Return the ASCII lines to log for the change from `before` to `after`."""
    return [
        line
        for phase in after.phases
        if (span := after.spans.get(phase))
        and (phase not in _ENGINE_PHASES or span.ended is not None or _counted(before, after))
        and (line := _line(phase, before.spans.get(phase), span))
    ]


def about(seconds: float) -> str:
    """Return a rough duration such as `about 40 s` or `about 7 min`."""
    tens = max(1, round(seconds / 10)) * 10
    return f"about {tens} s" if tens < 120 else f"about {round(seconds / 60)} min"


def announcement(progress: Progress) -> Text:
    """Return a table of the phases and how long each is likely to take."""
    rows = [(phase, about(progress.expected[phase])) for phase in progress.phases if phase in progress.expected]
    return align_rows([*rows, ("all", about(sum(progress.expected.values())))])


def times(progress: Progress) -> Text:
    """Return a table of the time that each phase took."""
    spans = [(phase, span) for phase in progress.phases if (span := progress.spans.get(phase))]
    return align_rows([(phase, duration(span.seconds(span.ended or span.started))) for phase, span in spans])


def align_rows(rows: list[tuple[str, str]]) -> Text:
    """Return names and values as lines that are never wrapped or cut, because users copy paths and commands."""
    width = max(len(name) for name, _ in rows)
    return Text("\n").join(Text.assemble((f"{name:<{width}}  ", "dim"), value) for name, value in rows)


def label(urn: str) -> str:
    """Return `urn:...::a$kubernetes:helm.sh/v4:Chart::kueue` as `Chart kueue`."""
    *_, types, name = urn.split("::")
    return f"{types.split('$')[-1].split(':')[-1]} {name}"


def _row(progress: Progress, phase: Phase, now: float, width: int) -> RenderableType:
    span = progress.spans.get(phase)
    row = Table.grid(padding=(0, 1), pad_edge=False)
    row.width = width
    for columns in (1, max(len(name) for name in progress.phases)):
        row.add_column(width=columns, no_wrap=True)
    row.add_column(ratio=1, no_wrap=True, overflow="ellipsis")
    row.add_column(justify="right", no_wrap=True)
    expected = progress.expected.get(phase)
    if span is None:
        row.add_row(Text("·", "dim"), Text(phase, "dim"), "", Text(about(expected) if expected else "", "dim"))
        return row
    detail, took = span.detail.partition("\n")[0], duration(span.seconds(now))
    if span.ended is None:
        spin = _SPINNER[int(now * _SPINS_PER_SECOND) % len(_SPINNER)]
        # An estimate that has passed would only be wrong.
        took += f" of {about(expected)}" if expected and span.seconds(now) < expected else ""
        row.add_row(Text(spin, "cyan"), Text(phase, "bold"), detail, took)
    else:
        mark = Text("✗", "red") if span.failed else Text("✓", "green")
        row.add_row(mark, phase, Text(detail, "dim"), Text(took, "dim"))
    return row


def _counted(before: Progress, after: Progress) -> bool:
    """Return whether the engine has finished enough resources for another line, or reports something else."""
    if after.resources == before.resources:
        return True
    count, earlier = len(after.resources.done), len(before.resources.done)
    return count // _RESOURCES_PER_LINE != earlier // _RESOURCES_PER_LINE


def _line(phase: Phase, before: Span | None, after: Span) -> str | None:
    is_news = after.detail and (before is None or before.detail != after.detail)
    parts = [after.detail.replace("\n", ": ")] if is_news else []
    if after.ended is not None and (before is None or before.ended is None):
        parts.append(f"{'failed' if after.failed else 'done'} in {duration(after.seconds(after.ended))}")
    elif before is None:
        parts.append("begins")
    return f"{phase}: {', '.join(parts)}" if parts else None


def _counts(step: "StepEventMetadata") -> bool:
    """Return whether to count the step. A chart counts once, because a plan without a cluster cannot list its parts."""
    return not step.type.startswith(_BOOKKEEPING) and _IN_CHART not in step.urn

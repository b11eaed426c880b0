"""The state of one `make up` or `make down` as frozen values.

Owns the model alone: `reduce` makes the next snapshot from an event, `render` and `plain` show one.
Times are seconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cli.observed.files import Failure
from cli.observed.first_cause import HostEnd, Traces
from cli.observed.outcome import Outcome
from cli.observed.pod import Pod, PodKey
from cli.observed.training import Training


class Phase(StrEnum):
    """The stretches of a run, in the order in which they come."""

    PROGRAMS = "programs"
    CONTROL_PLANE = "control plane"
    PLAN = "plan"
    INFRASTRUCTURE = "infrastructure"
    QUEUE = "queue"
    PODS = "pods"
    TRAINING = "training"
    DESTROY = "destroy"
    STOP = "stop"


UP_PHASES = (
    Phase.PROGRAMS,
    Phase.CONTROL_PLANE,
    Phase.PLAN,
    Phase.INFRASTRUCTURE,
    Phase.QUEUE,
    Phase.PODS,
    Phase.TRAINING,
)
DOWN_PHASES = (Phase.CONTROL_PLANE, Phase.DESTROY, Phase.STOP)


@dataclass(frozen=True)
class Span:
    """One phase: when it began and ended, and one line about it."""

    started: float
    ended: float | None = None
    failed: bool = False
    detail: str = ""

    def seconds(self, now: float) -> float:
        """How long the phase took, or has taken so far."""
        return max(0.0, (now if self.ended is None else self.ended) - self.started)


@dataclass(frozen=True)
class Resources:
    """Progress of the Pulumi engine, by URN."""

    total: int = 0
    """Resources of the plan; 0 while it is not known."""
    active: tuple[str, ...] = ()
    done: frozenset[str] = frozenset()
    changed: frozenset[str] = frozenset()
    """Those of `done` that were created, updated, replaced or deleted."""
    errors: tuple[str, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """All that is known at one moment."""

    title: str
    phases: tuple[Phase, ...]
    spans: Mapping[Phase, Span] = field(default_factory=dict[Phase, Span])
    resources: Resources = Resources()
    job: str = ""
    """Name of the JobSet that is watched."""
    queue: str = ""
    hint: str = ""
    """A command to try while the job trains."""
    pod_count: int = 0
    """Pods that the JobSet has when all run; 0 until it is seen."""
    pods: Mapping[PodKey, Pod] = field(default_factory=dict[PodKey, Pod])
    waiting: Mapping[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Workloads that wait in the queue: name to (minus priority, creation), the order of admission."""
    restarts: int = 0
    failed: tuple[Pod, ...] = ()
    """Pods that failed by themselves, of all attempts, in the order in which they were seen."""
    records: tuple[Failure, ...] = ()
    """What hosts that failed left in the job's folder."""
    training: Training = Training()
    outcome: Outcome | None = None

    def first_cause(self, attempt: int) -> HostEnd | None:
        """The end of a host that ended the start after `attempt` restarts; None: it was not seen."""
        if not any(pod.attempt == attempt for pod in self.failed):
            return None
        return Traces(self.job, 0.0, self.failed, self.records).first_cause(attempt)

    def begin(self, phase: Phase, at: float, detail: str = "") -> "Snapshot":
        """The phase has begun; a second call changes nothing."""
        return self if phase in self.spans else self._with(phase, Span(at, detail=detail))

    def tell(self, phase: Phase, detail: str) -> "Snapshot":
        """Another line about a phase that has begun."""
        return self._with(phase, replace(self.spans[phase], detail=detail))

    def end(self, phase: Phase, at: float, detail: str = "", failed: bool = False) -> "Snapshot":
        """The phase has ended; a second call changes nothing."""
        span = self.spans[phase]
        if span.ended is not None:
            return self
        return self._with(phase, replace(span, ended=at, failed=failed, detail=detail or span.detail))

    def running(self) -> Phase | None:
        """The phase that goes on now, the latest if there are several."""
        begun = [phase for phase in self.phases if phase in self.spans and self.spans[phase].ended is None]
        return begun[-1] if begun else None

    def _with(self, phase: Phase, span: Span) -> "Snapshot":
        return replace(self, spans={**self.spans, phase: span})

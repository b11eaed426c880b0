"""A fault, and what is expected of a job that it strikes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from infra.cluster.kubernetes import Json
from tests.chain.stack import SAVE_EVERY, Chain

GONE = frozenset({"KILLED", "PEER_LOST"})
"""Endings of an attempt in which a host is killed."""
SUSPENDED = "Suspended"
"""Terminal state of a job that does not end but will never run again."""
TAKE_STEP = "workloads.training.step:CompiledProgram.step"
"""The trainer's function that takes a step, for sabotage."""
LEADER = "slice-0-0"
"""Host that runs JAX's coordination service. Every step waits for its slowest host, including this one."""
BETWEEN_SAVES = SAVE_EVERY + 2
"""A step after the first save and before the second."""


@dataclass(frozen=True)
class Expected:
    """What is expected of the job, declared before the fault strikes."""

    terminal: str = "Completed"
    """Terminal state of the JobSet, or SUSPENDED."""
    starts: int = 2
    """Number of attempts in the run's ledger."""
    charged: int = 1
    """Restarts that count toward `max_restarts`."""
    endings: frozenset[str] = frozenset()
    """Possible endings of the struck attempt: names of exit codes, or KILLED. Empty if no attempt was struck."""
    killed: tuple[str, ...] = ()
    """Hosts `slice-S-H` of which an event must name one that was killed."""
    culprit: str | None = None
    """Beginning of the name `slice-S-H` of the host whose failure record names the cause. None if no host could write a
    record."""
    cause: str | None = None
    """Part of the cause in that record. `{job}` is the name of the job, also in `warning`."""
    lost_steps: int | None = None
    """Maximum number of steps that are repeated. None for one save interval."""
    recovery_seconds: float = 120
    """Maximum seconds from the strike to a step beyond all earlier ones."""
    loss_tolerance: float = 0.0
    """Relative tolerance of losses, from the first skipped step on if there is one. 0 means equal bit for bit."""
    skipped: frozenset[int] = frozenset()
    """Steps that are skipped because their loss or gradient is not finite. Only these have no loss."""
    spoiled_from: int | None = None
    """First step whose losses may be wrong before it is repeated. None if repeated steps must agree."""
    warning: str | None = None
    """Text that a line of the run's ledgers must contain."""
    condition: str | None = None
    """Part of the message of a condition of the JobSet or its Workload at the end."""
    same_data: bool = True
    """Whether the job trains on the data of the undisturbed job, so that the losses can be compared."""


UNDISTURBED = Expected(starts=1, charged=0, lost_steps=0)
"""The job continues as if nothing had happened."""
PREEMPTED = Expected(charged=0, endings=frozenset({"PREEMPTED"}), culprit="slice-", cause="SIGTERM", lost_steps=0)
"""The job receives SIGTERM: it saves, leaves a record, and the restart does not count."""


def trainer_killed(host: str, **more: Any) -> Expected:
    """The trainer of a host `slice-S-H` is killed. Its pod stays, and records the end."""
    return Expected(endings=GONE, culprit=host, cause="the process was killed by SIGKILL", **more)


def nothing(*_: object) -> None:
    """Change, prepare or strike nothing."""


@dataclass(frozen=True)
class Fault:
    """One row of the catalogue."""

    name: str
    """Name of the fault and of its job: at most 26 lower-case letters, digits and hyphens."""
    what: str
    """Description for the documentation."""
    expected: Expected
    strike: Callable[[Chain, str], None] = nothing
    """Injects the fault into the job of that name, which has just done `at_step`. It may wait and repair. By default,
    the job's pods contain the fault."""
    at_step: int | None = None
    """Step after which the fault strikes. None if it strikes as soon as the job is submitted."""
    job: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of the job, which override those of `tests.chain.stack.JOB`."""
    edit: Callable[[Json], None] = nothing
    """Changes the rendered JobSet before it is submitted, such as the environment of its pods."""
    before: Callable[[Chain], None] = nothing
    """Prepares what the job needs, before it is submitted."""
    anytime: bool = False
    """Whether it can strike any running job at any time, so that long runs draw it too."""


def recorded_before(step: int) -> int:
    """The newest step that the leader has recorded if a host fails or stops in `step`: it reads the result of a step
    while the next one runs."""
    return step - 2

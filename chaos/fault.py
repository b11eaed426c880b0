"""What a fault is: how it strikes, and what must hold when it has.

Owns the types. How the facts are gathered is the business of `chaos.field`, whether they are as expected that of
`chaos.verdict`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infra.kubernetes import Json

if TYPE_CHECKING:
    from chaos.field import Field


TAKE_STEP = "workloads.training.step:CompiledProgram.step"
"""The trainer's function that takes a step, for sabotage."""

SUSPENDED = "Suspended"
"""Terminal state of a job that neither ends nor will ever run again."""


def _as_rendered(_: Json) -> None:
    """Changes nothing."""


def _nothing(_: "Field") -> None:
    """Nothing needs to be there."""


def comes_with_the_job(_: "Field", job: str) -> None:
    """A strike that does nothing more: the job's pods bring the fault with them."""


@dataclass(frozen=True)
class Expected:
    """What must hold of the job, stated before the fault strikes."""

    terminal: str = "Completed"
    """State that the JobSet ends in, or SUSPENDED."""
    starts: int = 2
    """Starts of the run that its ledger knows."""
    charged: int = 1
    """Restarts that count toward `max_restarts`."""
    endings: frozenset[str] = frozenset()
    """How the struck start may have ended: names of exit codes, or KILLED. Empty: it was not struck."""
    culprit: str | None = None
    """Beginning of the pod's name whose failure record tells the cause; None: nobody is left to tell."""
    cause: str | None = None
    """Part of the cause in that record."""
    lost_steps: int | None = None
    """Most steps that are done again; None: one save interval."""
    recovery_seconds: float = 120
    """From the strike until a step beyond the last one before it is done."""
    loss_tolerance: float = 0.0
    """Relative, from the first skipped step on where there is one; 0: the same losses bit for bit."""
    skipped: frozenset[int] = frozenset()
    """Steps that are skipped since their loss or gradient is not finite; the only ones without a loss."""
    spoiled_from: int | None = None
    """First step whose losses may be wrong before they are done again; None: steps done twice agree."""
    warning: str | None = None
    """Part of a warning, or of another line of the run's ledgers, that must be there."""
    said: str | None = None
    """Part of a condition's message of the JobSet or of its Workload at the end."""
    event: str | None = None
    """Regular expression that is found in the message of an event of the JobSet, its Jobs or its pods."""
    same_data: bool = True
    """Whether it trains on the data of the job that nothing strikes, whose losses are to be compared with."""


UNDISTURBED = Expected(starts=1, charged=0, lost_steps=0)
"""The job goes on as if nothing had happened."""


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue."""

    name: str
    """Also that of its job: lower-case letters, digits and hyphens, at most 26."""
    what: str
    """What happens, as a person would say it."""
    strike: Callable[["Field", str], None]
    """Does it to the job of that name, which has just done `at_step`. It may wait, and mend what it broke; what it
    leaves broken outlives the job."""
    expected: Expected
    at_step: int | None = None
    """None: as soon as the job is submitted."""
    job: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings of the job over those of the field."""
    before: Callable[["Field"], None] = _nothing
    """What must be there before the job is submitted."""
    anytime: bool = False
    """Whether it may strike any running job at any moment, so that random runs draw it too."""
    edit: Callable[[Json], None] = _as_rendered
    """Changes the rendered JobSet before it is submitted, such as the environment of its pods."""

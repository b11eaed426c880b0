"""What a fault is: how it strikes, and what must hold when it has.

Owns the types. How the facts are gathered is the business of `chaos.field`, whether they are as expected that of
`chaos.verdict`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chaos.field import Field


@dataclass(frozen=True)
class Expected:
    """What must hold of the job, stated before the fault strikes."""

    terminal: str = "Completed"
    """State that the JobSet ends in."""
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
    """Relative; 0: the same losses bit for bit."""


@dataclass(frozen=True)
class Fault:
    """One entry of the catalogue."""

    name: str
    """Also that of its job: lower-case letters, digits and hyphens, at most 26."""
    what: str
    """What happens, as a person would say it."""
    strike: Callable[["Field", str], None]
    """Does it to the job of that name, which has just done `at_step`."""
    expected: Expected
    at_step: int | None = None
    """None: as soon as the job is submitted."""
    job: Mapping[str, object] = field(default_factory=dict[str, object])
    """Settings of the job over those of the field."""

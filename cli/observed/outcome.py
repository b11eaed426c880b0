"""How a job ended, as its JobSet says."""

from dataclasses import dataclass
from typing import Literal

from cli.observed.objects import Object, condition


@dataclass(frozen=True)
class Outcome:
    """How the JobSet ended."""

    state: Literal["Completed", "Failed"]
    reason: str = ""
    message: str = ""


DELETED = Outcome("Failed", "Deleted", "the JobSet was deleted while it was watched")


def outcome_of(jobset: Object) -> Outcome | None:
    """None: it has not ended."""
    state = jobset.get("status", {}).get("terminalState")
    if not state:
        return None
    told = condition(jobset, state)
    return Outcome(state, told.get("reason", ""), told.get("message", ""))

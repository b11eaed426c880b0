"""What the time of a run is spent on, and the events at the ends of its pieces."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any


class Cause(StrEnum):
    """What time was spent on."""

    PRODUCTIVE = "productive steps"
    INPUT = "steps waiting for the host"
    LOST = "lost work"
    SAVE = "saves"
    COMPARE = "comparing slices"
    EVALUATION = "evaluation"
    CHANGE = "changing slices"
    """Slices agree on who trains on, wait for enough of them, or hand over the training state."""
    IDLE = "idle slices"
    """Share of the slices that were lost or joining while the others went on."""
    COMPILE = "compilation"
    RESTORE = "restore"
    START = "start of hosts"
    WAITING = "waiting for hosts"
    HUNG = "hung"
    DOWN = "down"
    OTHER = "other"


ENDS_A_PIECE = {
    "start": Cause.START,
    "restore": Cause.RESTORE,
    "compile": Cause.COMPILE,
    "save": Cause.SAVE,
    "slices_agree": Cause.COMPARE,
    "SlicesChanged": Cause.CHANGE,
    "gave_state": Cause.CHANGE,
    "Evaluation": Cause.EVALUATION,
    # At the end, and after SIGTERM, the loop waits until the last checkpoint is complete.
    "RunSummary": Cause.SAVE,
}
"""Cause of a piece of the leader's time, by the event at its end."""


def cause_before(event: str, facts: Mapping[str, Any]) -> Cause | None:
    """Return the cause of the piece of time that an event ends. `None` if it ends none."""
    if event == "restore" and "donor" in facts:
        return Cause.CHANGE  # The state came from another slice, not from a checkpoint.
    return ENDS_A_PIECE.get(event)

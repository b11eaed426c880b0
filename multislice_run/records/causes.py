"""What the time of a run is spent on, and the events at the ends of its pieces."""

from enum import StrEnum


class Cause(StrEnum):
    """What time was spent on."""

    PRODUCTIVE = "productive steps"
    INPUT = "steps waiting for the host"
    LOST = "lost work"
    SAVE = "saves"
    COMPARE = "comparing slices"
    EVALUATION = "evaluation"
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
    "Evaluation": Cause.EVALUATION,
    # At the end, and after SIGTERM, the loop waits until the last checkpoint is complete.
    "RunSummary": Cause.SAVE,
}
"""Cause of a piece of the leader's time, by the event at its end. Other events end none."""

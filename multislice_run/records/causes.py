"""What the time of a run is spent on."""

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

"""Names of the events in a ledger, and what the time of a run is spent on."""

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


class EventName(StrEnum):
    """Names of the events in a ledger."""

    START = "start"
    FEWER_SLICES = "fewer_slices"
    KERNEL_TRIED = "kernel_tried"
    KERNEL_PASSED_OVER = "kernel_passed_over"
    KERNEL_CHOSEN = "kernel_chosen"
    KERNEL_CHANGED = "kernel_changed"
    INITIAL_WEIGHTS = "initial_weights"
    LOCAL_CHECKPOINT_SKIPPED = "local_checkpoint_skipped"
    RESTORED_LOCALLY = "restored_locally"
    CHECKPOINT_SKIPPED = "checkpoint_skipped"
    RESTORE = "restore"
    SETTINGS_CHANGED = "settings_changed"
    COMPILE = "compile"
    RUN_STARTED = "run_started"
    LOCAL_CHECKPOINT_WRITTEN = "local_checkpoint_written"
    SAVE = "save"
    CHECKPOINT_SAVED = "checkpoint_saved"
    EVALUATION = "evaluation"
    SLICES_AGREE = "slices_agree"
    PACE = "pace"
    HOSTS = "hosts"
    ROLLED_BACK = "rolled_back"
    WARNING = "warning"
    RUN_SUMMARY = "run_summary"
    STOP = "stop"


BY_CLASS = {name.title().replace("_", ""): name for name in EventName}
"""Names of events by that of the class of `workloads.progress` with their facts, such as `RunStarted`. In format 1,
these were the names of events."""

ENDS_A_PIECE: dict[str, Cause] = {
    EventName.START: Cause.START,
    EventName.RESTORE: Cause.RESTORE,
    EventName.COMPILE: Cause.COMPILE,
    EventName.SAVE: Cause.SAVE,
    EventName.SLICES_AGREE: Cause.COMPARE,
    EventName.EVALUATION: Cause.EVALUATION,
    # At the end, and after SIGTERM, the loop waits until the last checkpoint is complete.
    EventName.RUN_SUMMARY: Cause.SAVE,
}
"""Cause of a piece of the leader's time, by the event at its end. Other events end none."""

"""Faults that strike a host while a checkpoint is on its way to storage."""

from dataclasses import replace

from chaos.fault import Expected, Fault, comes_with_the_job
from chaos.faults.process import GONE, HANGS_SOON, LEADER, told_of_kill
from chaos.field import SAVE_EVERY
from chaos.sabotage import Deed, Sabotage, sabotaged

_WRITER = "slice-0-1"
"""Like the leader it holds the first replica, the one that is written; the leader also writes record and commit."""
_SECOND = 2 * SAVE_EVERY
_ARRAYS_ARE_WRITTEN_SECONDS = 2.0

_AFTER_COMMIT = "orbax.checkpoint.checkpoint_manager:CheckpointManager._finalize_checkpoint"


def _at_second_save(deed: Deed, function: str, host: str, seconds: float = 0.0) -> Sabotage:
    return Sabotage(deed, function, (host,), (2, 2), seconds=seconds)


_BEFORE_ANYTHING = _at_second_save("kill", "workloads.training.checkpoint:Checkpoints.save", _WRITER)
_ARRAYS_IN_PART = Sabotage(
    "kill",
    "orbax.checkpoint._src.serialization.serialization:async_serialize_from_host",
    (_WRITER,),
    (4, 4),
    about=f"checkpoints/{_SECOND}/",
)
_BEFORE_RECORD = _at_second_save(
    "kill",
    "orbax.checkpoint._src.handlers.json_checkpoint_handler:JsonCheckpointHandler._save_fn",
    LEADER,
    _ARRAYS_ARE_WRITTEN_SECONDS,
)
_BEFORE_COMMIT = _at_second_save(
    "kill", "orbax.checkpoint._src.checkpointers.async_checkpointer:_on_commit_callback", LEADER
)


def _crash(name: str, what: str, sabotage: Sabotage, lost_steps: int) -> Fault:
    expected = Expected(endings=GONE, lost_steps=lost_steps, event=told_of_kill(name, *sabotage.hosts))
    return Fault(name, what, comes_with_the_job, expected, at_step=_SECOND - 1, edit=sabotaged(sabotage))


FAULTS = (
    # The save that fails is that of one interval; until the next one begins, which waits for it, training goes on.
    _crash("save-not-begun", "a host dies as a save begins", _BEFORE_ANYTHING, SAVE_EVERY),
    _crash("save-arrays-in-part", "a host dies when it wrote some arrays", _ARRAYS_IN_PART, 2 * SAVE_EVERY),
    _crash("save-without-record", "the leader dies when arrays are there alone", _BEFORE_RECORD, 2 * SAVE_EVERY),
    _crash("save-not-committed", "the leader dies when all but the commit is there", _BEFORE_COMMIT, 2 * SAVE_EVERY),
    _crash(
        "save-not-told",
        "the leader dies when a save is complete and nobody was told",
        _at_second_save("kill", _AFTER_COMMIT, LEADER),
        SAVE_EVERY,
    ),
    Fault(
        "save-stopped",
        "a host stands still as it writes",
        comes_with_the_job,
        Expected(
            endings=frozenset({"HANG"}),
            lost_steps=2 * SAVE_EVERY,
            culprit="save-stopped-slice-",
            cause=f"no sign of life from save-stopped-{_WRITER}",
        ),
        at_step=_SECOND - 1,
        job=HANGS_SOON,
        edit=sabotaged(replace(_ARRAYS_IN_PART, deed="stop")),
    ),
)

"""Faults in the files of checkpoints, told when the next start reads them."""

import signal
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

from chaos.fault import Expected, Fault
from chaos.faults.process import GONE, told_of_kill
from chaos.field import SAVE_EVERY, STEPS, Field
from chaos.sabotage import Sabotage, sabotaged
from infra.kubernetes import Json

_HOST = "slice-1-1"
_SETTLED_SECONDS = 5.0
"""When all hosts wait for one, the saves that are under way end within this time, or never."""
_SKIPPED_SECONDS = 180

KINDS = {
    "arrays": "state/ocdbt.process_*/d/*",
    "index of the arrays": "state/d/*",
    "place of the index": "state/manifest.ocdbt",
    "structure of the state": "state/_METADATA",
    "record": "record/metadata",
}
"""Files of a checkpoint without which it is not what was saved."""
SIDE_FILES = (
    "_CHECKPOINT_METADATA",
    "commit_success.txt",
    "*/commit_success.txt",
    "state/_sharding",
    "state/ocdbt.process_*/manifest.ocdbt",
    "state/_METADATA",
)
"""Files of which a start needs nothing, or not each bit."""


def _flip(path: Path) -> None:
    """Turn over one bit, in the part of a record where the fingerprints are."""
    data = bytearray(path.read_bytes())
    data[len(data) // 4] ^= 1
    _write(path, bytes(data))


def _truncate(path: Path) -> None:
    _write(path, path.read_bytes()[: path.stat().st_size // 2])


def _empty(path: Path) -> None:
    _write(path, b"")


def _write(path: Path, data: bytes) -> None:
    # In place: the server keeps what it knows of a file with it, and reads its size anew.
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(data)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "flipped": _flip,
    "truncated": _truncate,
    "empty": _empty,
    "missing": Path.unlink,
}
_PAIRS = [pair for pair in product(KINDS, DAMAGES) if pair != ("structure of the state", "flipped")]
"""A bit of the structure may be one of a word that nobody reads."""


def _stands_still_before(step: int) -> Callable[[Json], None]:
    return sabotaged(Sabotage("stop", "workloads.training.data:Batches.training", (_HOST,), (step, step)))


def _complete(field: Field, job: str) -> list[Path]:
    """Checkpoints of a job that stands still, the oldest first."""
    time.sleep(_SETTLED_SECONDS)
    found = (field.run_folder(job) / "checkpoints").glob("*/commit_success.txt")
    return sorted((path.parent for path in found), key=lambda folder: int(folder.name))


def _damage_each(field: Field, job: str) -> None:
    """Another checkpoint for each kind of file and damage, the newest ones; one start skips them all."""
    struck = _complete(field, job)[-len(_PAIRS) :]
    for folder, (kind, damage) in zip(struck, _PAIRS, strict=True):
        for path in _found(folder, KINDS[kind]):
            DAMAGES[damage](path)
    field.send(signal.SIGKILL, job, _HOST)
    steps = {int(folder.name) for folder in struck}
    field.wait(f"{job} to skip {sorted(steps)}", lambda: _skipped(field, job) == steps, _SKIPPED_SECONDS)


def _damage_side_files(field: Field, job: str) -> None:
    newest = _complete(field, job)[-1]
    for pattern in SIDE_FILES:
        for path in _found(newest, pattern):
            _flip(path)
    field.send(signal.SIGKILL, job, _HOST)


def _found(checkpoint: Path, pattern: str) -> list[Path]:
    found = [*checkpoint.glob(pattern)]
    if not found:
        raise FileNotFoundError(f"expected {pattern} in {checkpoint}, got none of them: Orbax writes other files now")
    return found


def _skipped(field: Field, job: str) -> set[int]:
    """Steps of which the ledger tells that their checkpoint was skipped, and which lie beside the others now."""
    told = {event.facts["step"] for event in field.history(job).events("CheckpointSkipped")}
    away = {int(folder.name.split("-")[2]) for folder in field.run_folder(job).glob("unusable-checkpoint-*")}
    return told & away


_SAVES = len(_PAIRS) + 2
_BEFORE_THE_LAST_SAVE = STEPS - 2

FAULTS = (
    Fault(
        "checkpoints-damaged",
        "of each kind of file, one is flipped, truncated, empty and missing in a checkpoint each",
        _damage_each,
        # The last save may not be complete when the host stands still. Each damaged checkpoint is read before the next.
        Expected(
            endings=GONE, lost_steps=_SAVES, recovery_seconds=180, event=told_of_kill("checkpoints-damaged", _HOST)
        ),
        at_step=_SAVES,
        job={"training": {"save_every_steps": 1, "keep_checkpoints": STEPS}},
        edit=_stands_still_before(_SAVES + 1),
    ),
    Fault(
        "side-files-damaged",
        "in the newest checkpoint, every file that a start does not need is flipped",
        _damage_side_files,
        Expected(endings=GONE, lost_steps=SAVE_EVERY, event=told_of_kill("side-files-damaged", _HOST)),
        at_step=_BEFORE_THE_LAST_SAVE,
        edit=_stands_still_before(_BEFORE_THE_LAST_SAVE + 1),
    ),
)

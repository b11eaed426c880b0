"""Faults of checkpoints and of the object store: during a save, in stored files, in the store itself."""

import argparse
import inspect
import os
import resource
import signal
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

from infra.cluster.kubernetes import Json
from tests.chain.stack import BUCKET, SAVE_EVERY, STEPS, Chain
from tests.faults.cluster import server_pid
from tests.faults.fault import LEADER, UNDISTURBED, Expected, Fault, recorded_before, trainer_killed
from tests.faults.hosts import HANGS_SOON, between_saves
from tests.faults.sabotage import Deed, Sabotage, add_sabotages
from workloads.data.documents import TextField
from workloads.data.encoders import BYTES, load_encoder
from workloads.data.prepare import Request, prepare

GCS_SERVER = "fake-gcs-server"
"""Name of the sandbox's object store among its servers."""
_WRITER = "slice-0-1"
"""Host that has the first replica, which is the one that is written, like the leader. The leader also writes record and
commit."""
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
    expected = trainer_killed(*sabotage.hosts, lost_steps=lost_steps)
    return Fault(name, what, expected, at_step=_SECOND - 1, edit=add_sabotages(sabotage))


SAVES = (
    # One interval's save fails. Training continues until the next save begins, which waits for the failed one.
    _crash("save-not-begun", "a host dies as a save begins", _BEFORE_ANYTHING, SAVE_EVERY),
    _crash("save-arrays-in-part", "a host dies after it wrote some arrays", _ARRAYS_IN_PART, 2 * SAVE_EVERY),
    _crash("save-without-record", "the leader dies when only the arrays are written", _BEFORE_RECORD, 2 * SAVE_EVERY),
    _crash(
        "save-not-committed",
        "the leader dies when everything but the commit is written",
        _BEFORE_COMMIT,
        2 * SAVE_EVERY,
    ),
    _crash(
        "save-not-told",
        "the leader dies when a save is complete but not reported",
        _at_second_save("kill", _AFTER_COMMIT, LEADER),
        SAVE_EVERY,
    ),
    Fault(
        "save-stopped",
        "a host hangs while it writes",
        Expected(
            endings=frozenset({"HANG"}),
            lost_steps=2 * SAVE_EVERY,
            culprit="slice-",
            cause=f"no sign of life from {{job}}-{_WRITER}",
        ),
        at_step=_SECOND - 1,
        job=HANGS_SOON,
        edit=add_sabotages(replace(_ARRAYS_IN_PART, deed="stop")),
    ),
)


_STOPPED_HOST = "slice-1-1"
_SETTLED_SECONDS = 5.0
"""Seconds within which running saves end while all hosts wait for one host; otherwise they never end."""
_SKIPPED_SECONDS = 180

KINDS = {
    "arrays": "state/ocdbt.process_*/d/*",
    "index of the arrays": "state/d/*",
    "place of the index": "state/manifest.ocdbt",
    "structure of the state": "state/_METADATA",
    "record": "record/metadata",
}
"""Files that a checkpoint needs in order to be complete."""
SIDE_FILES = (
    "_CHECKPOINT_METADATA",
    "commit_success.txt",
    "*/commit_success.txt",
    "state/_sharding",
    "state/ocdbt.process_*/manifest.ocdbt",
    "state/_METADATA",
)
"""Files that a restore does not need, or of which it does not need every bit."""


def _flipped(content: bytes) -> bytes:
    """Flip one bit, in a record where the fingerprints are."""
    place = len(content) // 4
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes | None]] = {
    "flipped": _flipped,
    "truncated": lambda content: content[: len(content) // 2],
    "empty": lambda _: b"",
    "missing": lambda _: None,
}
"""What a file contains after the damage; None if it is gone."""


def _damage(path: Path, damage: str) -> None:
    content = DAMAGES[damage](path.read_bytes())
    if content is None:
        path.unlink()
        return
    # In place, because the server keeps its metadata with the file, and rereads the size.
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)


_PAIRS = [pair for pair in product(KINDS, DAMAGES) if pair != ("structure of the state", "flipped")]
"""A flipped bit of the structure may be in a word that is never read."""


def _stopped_before(step: int) -> Callable[[Json], None]:
    return add_sabotages(Sabotage("stop", "workloads.training.data:Batches.training", (_STOPPED_HOST,), (step, step)))


def _complete(chain: Chain, job: str) -> list[Path]:
    """Complete checkpoints of a job with a stopped host, the oldest first."""
    time.sleep(_SETTLED_SECONDS)
    found = (chain.run_folder(job) / "checkpoints").glob("*/commit_success.txt")
    return sorted((path.parent for path in found), key=lambda folder: int(folder.name))


def _damage_each(chain: Chain, job: str) -> None:
    """Damage one of the newest checkpoints for each kind of file and damage. One restart skips all of them.

    The ledger reports each as skipped, and it is moved aside.
    """
    struck = _complete(chain, job)[-len(_PAIRS) :]
    for folder, (kind, damage) in zip(struck, _PAIRS, strict=True):
        for path in _found(folder, KINDS[kind]):
            _damage(path, damage)
    chain.send(signal.SIGKILL, job, _STOPPED_HOST)
    steps = {int(folder.name) for folder in struck}

    def are_skipped() -> bool:
        reported = {event.facts["step"] for event in chain.history(job).events("checkpoint_skipped")}
        away = {int(folder.name.split("-")[2]) for folder in chain.run_folder(job).glob("unusable-checkpoint-*")}
        return reported & away == steps

    chain.wait(f"{job} to skip {sorted(steps)}", are_skipped, _SKIPPED_SECONDS)


def _damage_side_files(chain: Chain, job: str) -> None:
    newest = _complete(chain, job)[-1]
    for pattern in SIDE_FILES:
        for path in _found(newest, pattern):
            _damage(path, "flipped")
    chain.send(signal.SIGKILL, job, _STOPPED_HOST)


def _found(checkpoint: Path, pattern: str) -> list[Path]:
    found = [*checkpoint.glob(pattern)]
    if not found:
        raise FileNotFoundError(f"expected {pattern} in {checkpoint}, got none of them: Orbax writes other files now")
    return found


_SAVES = len(_PAIRS) + 2
_BEFORE_THE_LAST_SAVE = STEPS - 2

FILES = (
    Fault(
        "checkpoints-damaged",
        "each kind of file is flipped, truncated, emptied and removed, in one checkpoint each",
        # The last save may be incomplete when the host stops. Each damaged checkpoint is read before the next.
        trainer_killed(_STOPPED_HOST, lost_steps=_SAVES, recovery_seconds=180),
        _damage_each,
        at_step=_SAVES,
        job={"training": {"save_every_steps": 1, "keep_checkpoints": STEPS}},
        edit=_stopped_before(_SAVES + 1),
    ),
    Fault(
        "side-files-damaged",
        "a bit of every file that a restore does not need is flipped in the newest checkpoint",
        trainer_killed(_STOPPED_HOST, lost_steps=SAVE_EVERY),
        _damage_side_files,
        at_step=recorded_before(_BEFORE_THE_LAST_SAVE + 1),
        edit=_stopped_before(_BEFORE_THE_LAST_SAVE + 1),
    ),
)


_STILL_SECONDS = 15.0
"""Seconds that include the second save."""
_SAVED_SECONDS = 60
_FAILED_SECONDS = 180
_DATA = "data-changed/tokens"


def _stop_for_a_while(chain: Chain, job: str) -> None:
    server = server_pid(chain, GCS_SERVER)
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(_STILL_SECONDS)
    finally:
        os.kill(server, signal.SIGCONT)
    back = time.time()

    def is_saved() -> bool:
        saves = chain.history(job).events("checkpoint_saved")
        return any(event.time > back for event in saves if event.facts["step"] == _SECOND)

    chain.wait(f"the checkpoint of step {_SECOND}, since then", is_saved, _SAVED_SECONDS)


def _fill(chain: Chain, job: str) -> None:
    """Make the store refuse every write until the trainers have ended.

    This is a limit of the server's process, because mounting a small disk needs root.
    """
    server = server_pid(chain, GCS_SERVER)

    def says_why() -> bool:
        return "stopped: " in chain.log(job)

    soft, hard = resource.prlimit(server, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        chain.wait(f"the trainers of {job} to end and say why", says_why, _FAILED_SECONDS)
        time.sleep(_STILL_SECONDS)
    finally:
        resource.prlimit(server, resource.RLIMIT_FSIZE, (soft, hard))


@cache
def _tokens(text: str) -> Mapping[str, bytes]:
    """The files of a token folder that is made from a file of text."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "tokens")
        request = Request((text,), str(output), TextField("text"), "\n")
        prepare(request, load_encoder(BYTES), lambda _: None)
        return {path.name: path.read_bytes() for path in output.iterdir()}


def _put_data(chain: Chain, text: ModuleType) -> None:
    """Write the job's token folder."""
    for file, content in _tokens(inspect.getfile(text)).items():
        name = quote(f"{_DATA}/{file}", safe="")
        url = f"{chain.site.gcs_url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}"
        with urllib.request.urlopen(urllib.request.Request(url, content, method="POST")):
            pass


def _put_first_data(chain: Chain) -> None:
    """Write the job's token folder, and make the one that replaces it: the job would not wait for that."""
    _tokens(inspect.getfile(argparse))
    _put_data(chain, inspect)


def _change_data(chain: Chain, job: str) -> None:
    _put_data(chain, argparse)
    chain.send(signal.SIGKILL, job, "slice-1-1")


STORE = (
    between_saves("store-stands-still", "the store does not answer for a while", UNDISTURBED, _stop_for_a_while),
    between_saves(
        "store-full",
        "the store refuses every write until the trainers have ended, and later has room again",
        # The failure cannot be recorded in the store either; the pods' logs show it.
        Expected(endings=frozenset({"KILLED"}), lost_steps=2 * SAVE_EVERY, recovery_seconds=180),
        _fill,
        # Writers retry for minutes. A step that takes so long counts as a hang.
        job={"training": {"step_timeout_minutes": 0.75}, "grace_seconds": 15},
    ),
    between_saves(
        "data-changed",
        "the tokens of the job are replaced by others, and a host is killed",
        Expected(terminal="Failed", starts=1, culprit=LEADER, cause="data.digest: expected", same_data=False),
        _change_data,
        job={"data": {"source": "token-file", "path": f"gs://{BUCKET}/{_DATA}", "held_out_fraction": 0.3}},
        before=_put_first_data,
    ),
)

import json
import math
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore
from etils import epath
from jax.experimental import multihost_utils

from tests.checkout import ROOT
from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE, program_of
from workloads.progress import CheckpointSkipped
from workloads.spec import ExitCode, TrainingSpec
from workloads.training import checkpoint, restore
from workloads.training.checkpoint import FORMAT, Checkpoints, Record
from workloads.training.failures import NewerCheckpoint, NoCheckpoint
from workloads.training.fingerprint import Take, compile_fingerprints
from workloads.training.mesh import REPLICA
from workloads.training.step import Program, TrainState

pytestmark = pytest.mark.costs(cpu_seconds=15)

KEEP_ALL = small_job(Path("unused"), keep_checkpoints=1000).training
MANIFEST = {"image": "registry/image@sha256:abc"}
KEEP_TWO = small_job(Path("unused"), keep_checkpoints=2).training


def program(replica: int, fsdp: int) -> Program:
    return program_of(small_job(Path("unused"), replica, fsdp))


def opened(folder: Path, schedule: TrainingSpec = KEEP_TWO) -> Checkpoints:
    return Checkpoints(epath.Path(folder / "checkpoints"), schedule, ALONE)


@pytest.fixture(scope="module")
def shapes() -> TrainState:
    return program(2, 4).state_shapes


@pytest.fixture(scope="module")
def take(shapes: TrainState) -> Take:
    return compile_fingerprints(shapes)


@pytest.fixture(scope="module")
def state() -> TrainState:
    return program(2, 4).compile_initial()()


@pytest.fixture(scope="module")
def save(state: TrainState, take: Take) -> Callable[..., None]:
    def save(folder: Path, schedule: TrainingSpec = KEEP_TWO) -> None:
        checkpoints = opened(folder, schedule)
        for step in (2, 4, 6):
            checkpoints.save(step, state, Record(take(state)[0], MANIFEST))
            assert list(checkpoints.finished(wait=True)) == [step]
        checkpoints.close()

    return save


type Restored = Callable[[Path], TrainState | None]


@pytest.fixture(scope="module")
def restored(shapes: TrainState, take: Take) -> Restored:
    """Restore a state, where no checkpoint may be skipped."""
    return lambda folder: opened(folder).restore(shapes, take, lambda line: pytest.fail(line.line()))


@pytest.fixture(scope="module")
def saved_once(tmp_path_factory: pytest.TempPathFactory, save: Callable[..., None]) -> Path:
    """Save steps 2, 4 and 6, of which the newest two are kept."""
    folder = tmp_path_factory.mktemp("saved")
    save(folder)
    return folder


@pytest.fixture
def saved(tmp_path: Path, saved_once: Path) -> Path:
    """Return a folder with these steps for one test."""
    return Path(shutil.copytree(saved_once, tmp_path / "saved"))


def test_a_save_does_not_ask_where_hosts_agree_to_stop(
    tmp_path: Path, save: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(multihost_utils, "reached_preemption_sync_point", asked.append)
    save(tmp_path)
    assert not asked


def data_files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("d/*"), key=lambda path: path.stat().st_size)


def cut(folder: Path) -> None:
    for path in data_files(folder):
        path.write_bytes(path.read_bytes()[:-40])


def flip_one_bit(folder: Path) -> None:
    """Change an array so that it can still be read. A bit of the file may be one of a compressed block's header."""
    base = f"file://{folder / 'state'}/"
    where = {"driver": "zarr", "kvstore": {"driver": "ocdbt", "base": base, "path": "parameters.embedding/"}}
    stored: Any = tensorstore.open(where).result()
    values = stored.read().result()
    values.view(np.uint32).flat[0] ^= 1
    stored.write(values).result()


def lose_record(folder: Path) -> None:
    (folder / "record" / "metadata").unlink()


def shaped(record: object) -> Callable[[Path], None]:
    """Write another record."""

    def damage(folder: Path) -> None:
        (folder / "record" / "metadata").write_text(json.dumps(record))

    return damage


@pytest.mark.parametrize(("replica", "fsdp"), [(2, 4), (1, 8), (1, 1), (4, 2)])
def test_a_state_comes_back_bit_by_bit_on_any_mesh(saved: Path, state: TrainState, replica: int, fsdp: int) -> None:
    shapes = program(replica, fsdp).state_shapes
    found = opened(saved).restore(shapes, compile_fingerprints(shapes), lambda line: pytest.fail(line.line()))
    assert found is not None
    for leaf, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(state), strict=True):
        for shard in leaf.addressable_shards:
            np.testing.assert_array_equal(shard.data, np.asarray(wanted)[shard.index])


def test_a_state_comes_back_when_the_replicas_shared_the_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[..., None], restored: Restored
) -> None:
    monkeypatch.setattr(checkpoint, "MIN_SHARED_BYTES", 1)
    save(tmp_path)
    assert restored(tmp_path) is not None


def test_four_replicas_share_the_writing_where_more_would_have_too_little_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eight = program(8, 1)
    state = eight.compile_initial()()
    gate = state.parameters["blocks"]["gate"]
    monkeypatch.setattr(checkpoint, "MIN_SHARED_BYTES", gate.nbytes // 4)
    checkpoints = opened(tmp_path)
    checkpoints.save(2, state, Record(compile_fingerprints(eight.state_shapes)(state)[0], MANIFEST))
    checkpoints.close()
    store = {"driver": "ocdbt", "base": f"file://{tmp_path}/checkpoints/2/state/", "path": "parameters.blocks.gate/"}
    written: Any = tensorstore.open({"driver": "zarr", "kvstore": store}).result()
    assert math.prod(written.chunk_layout.read_chunk.shape) == gate.size // 4


def test_the_checkpoint_of_every_so_many_steps_is_kept_for_good(tmp_path: Path, save: Callable[..., None]) -> None:
    schedule = KEEP_TWO.model_copy(update={"keep_checkpoints": 1, "keep_every_steps": 4, "save_every_steps": 2})
    save(tmp_path, schedule)
    assert opened(tmp_path).steps() == [4, 6]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut, "process 0: "),
        (flip_one_bit, r"arrays are not what was saved: .* \(expected \w{16}, got \w{16} in replica"),
        (lose_record, "no fingerprints: "),
        (shaped([]), "no fingerprints: ValueError: expected a record with fingerprints and a manifest"),
        (shaped({"fingerprints": "all", "manifest": {}}), "no fingerprints: ValueError: expected a record"),
        (shaped({"fingerprints": {}, "manifest": []}), "no fingerprints: ValueError: expected a record"),
        (shaped({"format": "new", "fingerprints": {}, "manifest": {}}), "no fingerprints: "),
    ],
)
def test_a_damaged_checkpoint_is_skipped_aloud_and_kept_aside(
    saved: Path, shapes: TrainState, take: Take, state: TrainState, damage: Callable[[Path], None], reason: str
) -> None:
    damage(saved / "checkpoints" / "6")
    said: list[CheckpointSkipped] = []
    checkpoints = opened(saved)
    assert checkpoints.restore(shapes, take, said.append) is not None
    (skipped,) = said
    assert skipped.step == 6
    assert re.match(reason, skipped.reason)
    assert list(Path(skipped.folder).rglob("d/*"))
    checkpoints.save(6, state, Record(take(state)[0], MANIFEST))
    checkpoints.close()
    assert opened(saved).steps() == [4, 6]


def test_a_checkpoint_that_reaches_a_replica_damaged_is_skipped(
    saved: Path, shapes: TrainState, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = restore.first_replica_s

    def damaged(part: jax.Array) -> jax.Array:
        return jnp.where(jax.lax.axis_index(REPLICA) == 1, jnp.negative(send(part)), send(part))

    monkeypatch.setattr(restore, "first_replica_s", damaged)
    checkpoints = opened(saved, KEEP_TWO.model_copy(update={"read_once_from_replicas": 2}))
    with pytest.raises(NoCheckpoint, match=r"step 6: arrays are not what was saved: .* in replica 1\)"):
        checkpoints.restore(shapes, take, lambda line: None)


def test_training_does_not_start_over_when_no_checkpoint_can_be_used(saved: Path, restored: Restored) -> None:
    cut(saved / "checkpoints" / "4")
    flip_one_bit(saved / "checkpoints" / "6")
    for _ in range(2):
        with pytest.raises(
            NoCheckpoint, match=r"none of the 2 .*\(step 6: arrays are not .*; step 4: process 0"
        ) as stop:
            restored(saved)
        assert stop.value.code is ExitCode.NO_CHECKPOINT


def test_a_checkpoint_of_a_newer_image_ends_the_attempt_and_stays_where_it_is(saved: Path, restored: Restored) -> None:
    path = saved / "checkpoints" / "6" / "record" / "metadata"
    newer = {"format": FORMAT + 1, "added": "by a newer image"}
    path.write_text(json.dumps(json.loads(path.read_text()) | newer))
    with pytest.raises(NewerCheckpoint, match=rf"step 6 has format {FORMAT + 1}.* up to {FORMAT}; deploy") as stop:
        restored(saved)
    assert stop.value.code is ExitCode.NO_CHECKPOINT
    assert opened(saved).steps() == [4, 6]


def test_a_checkpoint_from_before_formats_were_numbered_is_restored(saved: Path, restored: Restored) -> None:
    path = saved / "checkpoints" / "6" / "record" / "metadata"
    record = json.loads(path.read_text())
    assert record.pop("format") == FORMAT
    path.write_text(json.dumps(record))
    assert restored(saved) is not None


SAVES_UNTIL_THE_DISK_IS_FULL = """
import os, sys
from contextlib import suppress
from pathlib import Path
from tests.workloads.training.test_checkpoint import KEEP_ALL, MANIFEST, opened, program
from workloads.training.checkpoint import Record
from workloads.training.failures import exit_code
from workloads.training.fingerprint import compile_fingerprints

made, disk = program(1, 1), Path(sys.argv[1])
state = made.compile_initial()()
record = Record(compile_fingerprints(made.state_shapes)(state)[0], MANIFEST)
for is_full_before in (True, False):
    checkpoints, step = opened(disk / str(is_full_before), KEEP_ALL), 0
    try:
        while True:
            step += 1
            if is_full_before and step == 2:
                with suppress(OSError), open(disk / "other", "wb", buffering=0) as other:
                    while other.write(bytes(512)):
                        pass
            checkpoints.save(step, state, record)
            assert [*checkpoints.finished(wait=True)] == [step]
    except Exception as error:
        saved = step in opened(disk / str(is_full_before), KEEP_ALL).steps()
        print(type(error).__name__, exit_code(error), step, saved, error, sep="|", flush=True)
    (disk / "other").unlink(missing_ok=True)
os._exit(0)
"""


@pytest.mark.costs(cpu_seconds=20)
def test_a_save_on_a_disk_that_is_or_gets_full_fails_as_a_save(tmp_path: Path) -> None:
    mounts = f'mount -t tmpfs -o size=8m none {tmp_path} && exec "$@"'
    saves = [sys.executable, "-c", SAVES_UNTIL_THE_DISK_IS_FULL, str(tmp_path)]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    command = ["unshare", "-rm", "sh", "-c", mounts, "sh", *saves]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, timeout=300, check=True)
    ends = done.stdout.decode().splitlines()
    assert len(ends) == 2
    for end in ends:
        kind, code, step, saved, message = end.split("|")
        assert (kind, int(code), saved) == ("SaveFailed", ExitCode.CRASH, "False")
        assert f"the checkpoint of step {step} cannot be written" in message
        assert "No space left" in message

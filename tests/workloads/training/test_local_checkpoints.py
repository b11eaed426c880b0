import shutil
from collections.abc import Callable
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from etils import epath

from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE, program_of
from workloads.progress import LocalCheckpointSkipped
from workloads.training.fingerprint import Take, compile_fingerprints
from workloads.training.local_checkpoints import ARRAYS, RECORD, LocalCheckpoints, Restored
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

pytestmark = pytest.mark.costs(cpu_seconds=15)

RUN = Run("run-1", epath.Path("unused"), 0, {"image": "registry/image@sha256:abc"})


def shapes_on(replica: int, fsdp: int) -> TrainState:
    return program_of(small_job(Path("unused"), replica, fsdp)).state_shapes


@pytest.fixture(scope="module")
def shapes() -> TrainState:
    return shapes_on(2, 4)


@pytest.fixture(scope="module")
def take(shapes: TrainState) -> Take:
    return compile_fingerprints(shapes)


@pytest.fixture(scope="module")
def state() -> TrainState:
    return program_of(small_job(Path("unused"), 2, 4)).compile_initial()()


def at(state: TrainState, step: int) -> TrainState:
    """Return `state` with this step number, so that states can be told apart."""
    return replace(state, step=jax.device_put(np.int32(step), state.step.sharding))


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


type Save = Callable[..., LocalCheckpoints]


@pytest.fixture(scope="module")
def save(shapes: TrainState, take: Take, state: TrainState) -> Save:
    def save(folder: Path, *steps: int, run: Run = RUN) -> LocalCheckpoints:
        local = LocalCheckpoints(folder, run, shapes, ALONE)
        for step in steps:
            (found, _) = local.begin(at(state, step), take)
            local.save(step, at(state, step), found)
        local.begin(state, take)
        return local

    return save


@pytest.fixture
def restore(shapes: TrainState, take: Take) -> Callable[..., tuple[Restored | None, list[LocalCheckpointSkipped]]]:
    def restore(folder: Path, saved: int = 0) -> tuple[Restored | None, list[LocalCheckpointSkipped]]:
        said: list[LocalCheckpointSkipped] = []
        return LocalCheckpoints(folder, RUN, shapes, ALONE).restore(saved, take, said.append), said

    return restore


def test_a_state_that_is_donated_while_it_is_written_is_written_as_it_was(
    tmp_path: Path, save: Save, restore: Any, state: TrainState, take: Take
) -> None:
    given = jax.tree.map(lambda leaf: leaf + 0, state)
    local = save(tmp_path)
    local.save(1, given, take(given)[0])
    zeroed = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 0, tree), donate_argnums=0)(given)
    jax.block_until_ready(zeroed)
    local.begin(state, take)
    found, said = restore(tmp_path)
    assert found
    assert not said


def test_each_shard_is_written_once_whatever_the_number_of_replicas(
    tmp_path: Path, save: Save, shapes: TrainState
) -> None:
    written = save(tmp_path, 1).written()
    assert written
    assert written.bytes == sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    assert written.bytes == (tmp_path / "0-1" / ARRAYS).stat().st_size


@pytest.mark.parametrize(("saved", "restored"), [(3, 4), (4, 4), (5, None)])
def test_a_state_that_is_older_than_the_checkpoint_in_storage_is_deleted(
    tmp_path: Path, save: Save, restore: Any, saved: int, restored: int | None
) -> None:
    save(tmp_path, 4)
    found, said = restore(tmp_path, saved=saved)
    assert not said
    assert (found and int(found.state.step)) == restored
    assert kept(tmp_path) == (["0-4"] if restored else [])


def flip_one_bit(folder: Path) -> None:
    content = bytearray((folder / ARRAYS).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / ARRAYS).write_bytes(content)


def cut(folder: Path) -> None:
    (folder / ARRAYS).write_bytes((folder / ARRAYS).read_bytes()[:-40])


def lose_arrays(folder: Path) -> None:
    (folder / ARRAYS).unlink()


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (flip_one_bit, "arrays of process 0 are not what was saved: "),
        (cut, "process 0: ValueError: arrays must have "),
        (lose_arrays, "process 0: FileNotFoundError: "),
    ],
)
def test_a_damaged_state_is_skipped_aloud_for_the_one_before_it(
    tmp_path: Path, save: Save, restore: Any, damage: Callable[[Path], None], reason: str
) -> None:
    save(tmp_path, 3, 4)
    damage(tmp_path / "0-4")
    found, (skipped,) = restore(tmp_path)
    assert int(found.state.step) == 3
    assert skipped.step == 4
    assert skipped.reason.startswith(reason)
    assert kept(tmp_path) == ["0-3"]


class NextToFullHost(Processes):
    """The first of two processes, of which the other has no state and no memory for one."""

    def share[T](self, key: str, decide: Callable[[], T]) -> T:
        return decide()

    def gather(self, key: str, value: Any) -> list[Any]:
        return [value, [] if key == "local/held" else "MemoryError"]


def test_a_host_that_has_no_state_and_cannot_take_one_ends_the_restore_from_memory(
    tmp_path: Path, save: Save, shapes: TrainState, take: Take
) -> None:
    save(tmp_path, 4)
    said: list[LocalCheckpointSkipped] = []
    local = LocalCheckpoints(tmp_path, RUN, shapes, NextToFullHost(0, 2, "host"))
    assert local.restore(0, take, said.append) is None
    assert said == [LocalCheckpointSkipped(4, "process 1: MemoryError")]


def test_what_a_crash_left_of_a_write_or_of_a_record_is_passed_over(
    tmp_path: Path, save: Save, restore: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 3, 4)
    shutil.copytree(tmp_path / "0-4", tmp_path / "partial")
    path = tmp_path / "0-4" / RECORD
    path.write_text(path.read_text()[:-40])
    found, said = restore(tmp_path)
    assert int(found.state.step) == 3
    assert not said
    assert "0-4 cannot be used: JSONDecodeError" in capsys.readouterr().out
    assert kept(tmp_path) == ["0-3"]


def test_a_full_memory_is_reported_and_the_state_before_it_stays(
    tmp_path: Path, save: Save, state: TrainState, take: Take, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = save(tmp_path, 3)

    def full(*_: object) -> None:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    local.save(4, state, take(state)[0])
    local.begin(state, take)
    written = local.written()
    assert written
    assert written.fault == "OSError: [Errno 28] No space left on device"
    assert kept(tmp_path) == ["0-3"]


def test_the_state_of_a_later_attempt_counts_even_if_it_is_of_an_earlier_step(
    tmp_path: Path, save: Save, restore: Any
) -> None:
    save(tmp_path, 7)
    save(tmp_path, 5, run=replace(RUN, start=1))
    found, _ = restore(tmp_path)
    assert found.age.name == "1-5"


def test_fewer_replicas_of_the_same_mesh_can_use_a_state(tmp_path: Path, save: Save) -> None:
    save(tmp_path, 3)
    other = shapes_on(1, 4)
    local = LocalCheckpoints(tmp_path, RUN, other, ALONE)
    found = local.restore(0, compile_fingerprints(other), lambda line: pytest.fail(line.line()))
    assert found
    assert int(found.state.step) == 3


def test_lines_that_the_leader_had_not_stored_come_back(
    tmp_path: Path, save: Save, restore: Any, state: TrainState, take: Take
) -> None:
    local = save(tmp_path)
    local.save(1, state, take(state)[0], ['{"step": 1}'])
    local.begin(state, take)
    found, _ = restore(tmp_path)
    assert found.record.steps == ('{"step": 1}',)

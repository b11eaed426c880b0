from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath

from tests.workloads.jobs import small_job
from workloads.training.checkpoint import Checkpoints
from workloads.training.failures import InvalidSpec
from workloads.training.mesh import build_mesh
from workloads.training.runtime import Processes
from workloads.training.step import Program, TrainState

ALONE = Processes(0, 1, "host-0")


def program(replica: int, fsdp: int) -> Program:
    job = small_job(Path("unused"), replica, fsdp)
    return Program(job, build_mesh(job.mesh, job.slices, jax.devices()))


@pytest.fixture(scope="module")
def state() -> TrainState:
    return program(2, 4).compile_initial()()


@pytest.fixture
def saved(tmp_path: Path, state: TrainState) -> Callable[[], Checkpoints]:
    """Opens checkpoints of which steps 2, 4 and 6 were saved and the newest two kept."""
    checkpoints = Checkpoints(epath.Path(tmp_path), 2, ALONE)
    for step in (2, 4, 6):
        checkpoints.save(step, state)
        assert list(checkpoints.finished(wait=True)) == [step]
    checkpoints.close()
    return lambda: Checkpoints(epath.Path(tmp_path), 2, ALONE)


def cut_data(folder: Path) -> None:
    for path in folder.rglob("d/*"):
        path.write_bytes(path.read_bytes()[:-40])


@pytest.mark.parametrize(("replica", "fsdp"), [(2, 4), (1, 8)])
def test_a_state_comes_back_bit_by_bit_on_any_mesh(
    saved: Callable[[], Checkpoints], state: TrainState, replica: int, fsdp: int
) -> None:
    restored = saved().restore(program(replica, fsdp).state_shapes, pytest.fail)
    assert restored is not None
    for found, wanted in zip(jax.tree.leaves(restored), jax.tree.leaves(state), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_the_newest_checkpoints_are_kept(saved: Callable[[], Checkpoints]) -> None:
    assert saved().steps() == [4, 6]


def test_an_unreadable_checkpoint_is_skipped_aloud_and_removed(
    saved: Callable[[], Checkpoints], tmp_path: Path
) -> None:
    cut_data(tmp_path / "6")
    said: list[str] = []
    checkpoints = saved()
    assert checkpoints.restore(program(2, 4).state_shapes, said.append) is not None
    assert len(said) == 1
    assert said[0].startswith("checkpoint at step 6 cannot be read, going back to the one before: ")
    assert checkpoints.steps() == [4]


def test_training_does_not_start_over_when_no_checkpoint_can_be_read(
    saved: Callable[[], Checkpoints], tmp_path: Path
) -> None:
    cut_data(tmp_path)
    with pytest.raises(InvalidSpec, match=r"none of the checkpoints \[4, 6\] .*existing_run: anew"):
        saved().restore(program(2, 4).state_shapes, lambda _: None)


def test_an_empty_folder_has_nothing_to_restore(tmp_path: Path) -> None:
    assert Checkpoints(epath.Path(tmp_path / "none"), 2, ALONE).restore(program(2, 4).state_shapes, pytest.fail) is None

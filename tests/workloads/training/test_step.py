import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import batches_of, program_of
from workloads.training.layout import Tree
from workloads.training.step import StepResult, TrainState

pytestmark = pytest.mark.costs(cpu_seconds=30)


LOWER = """
import sys
from pathlib import Path
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import program_of
each_step = small_job(Path("unused"), replica=1, fsdp=2, gather_weights="each-step")
for mesh in ({}, {"fsdp": 1, "stage": 2}):
    job = changed(each_step, model={"tied_embedding": False}, mesh=mesh)
    print(program_of(job).lower_step().as_text())
"""
"""Program that gathers all weights at once: over the slice, and as one of two stages."""


def lowered_with_hash_seed(seed: int) -> str:
    process = subprocess.run(
        [sys.executable, "-c", LOWER],
        env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(Path(__file__).parents[3])},
        capture_output=True,
        text=True,
        check=True,
    )
    return process.stdout


def losses(tmp_path: Path, replica: int, fsdp: int, steps: int, dtype: str = "float32") -> list[float]:
    job = small_job(tmp_path, replica, fsdp, compute_dtype=dtype)
    program = program_of(job)
    batches = batches_of(job, program, tmp_path)
    step, state = program.compile_step(), program.compile_initial()()
    found: list[float] = []
    for number in range(steps):
        state, result = step(state, batches.training(number))
        found.append(float(result.loss))
    assert int(state.step) == steps
    return found


def test_one_device_and_two_slices_of_four_train_alike(tmp_path: Path) -> None:
    alone, sharded = losses(tmp_path, 1, 1, 5), losses(tmp_path, 2, 4, 5)
    # Step 1 sees the same weights; later ones carry AdamW's sensitivity to the last bits of a gradient.
    assert sharded[0] == pytest.approx(alone[0], rel=5e-7)
    assert sharded == pytest.approx(alone, rel=1e-4)


@pytest.mark.compiles
def test_the_same_job_compiled_twice_gives_bitwise_the_same_losses(tmp_path: Path) -> None:
    assert losses(tmp_path, 1, 8, 4) == losses(tmp_path, 1, 8, 4)


def test_hosts_lower_the_same_step_whatever_their_hash_seeds() -> None:
    # With these two hash seeds, a set of the weights' names outside of the layers has different orders.
    one, other = lowered_with_hash_seed(1), lowered_with_hash_seed(2)
    assert "all_gather" in one
    assert hashlib.sha256(one.encode()).hexdigest() == hashlib.sha256(other.encode()).hexdigest()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loss_falls_in_twenty_steps(tmp_path: Path, dtype: str) -> None:
    found = losses(tmp_path, 2, 4, 20, dtype)
    assert found[0] == pytest.approx(np.log(256), abs=0.5)
    assert found[-1] < 0.7 * found[0]


def test_a_step_that_is_not_finite_changes_nothing_but_step_and_batch(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    program = program_of(job)
    state = program.compile_initial()()
    state.parameters["final_scale"] *= np.nan
    before = jax.tree.map(np.array, (state.parameters, state.optimizer))
    after, result = program.compile_step()(state, batches_of(job, program, tmp_path).training(0))
    assert bool(result.skipped)
    assert (int(after.step), int(after.batch)) == (1, 1)
    jax.tree.map(np.testing.assert_array_equal, (after.parameters, after.optimizer), before)


@pytest.mark.parametrize(("times", "skipped"), [(0.999, True), (1.001, False)])
def test_a_step_whose_gradient_norm_is_above_the_limit_changes_no_weight(
    tmp_path: Path, times: float, skipped: bool
) -> None:
    def stepped(limit: float | None) -> tuple[Tree, TrainState, StepResult]:
        job = changed(small_job(tmp_path), optimizer={"skip_norm": limit})
        program = program_of(job)
        state = program.compile_initial()()
        before = jax.tree.map(np.array, (state.parameters, state.optimizer))
        return before, *program.compile_step()(state, batches_of(job, program, tmp_path).training(0))

    _, usual, unlimited = stepped(None)
    before, after, result = stepped(times * float(unlimited.gradient_norm))
    assert (bool(unlimited.skipped), bool(result.skipped)) == (False, skipped)
    assert (int(after.step), int(after.batch)) == (1, 1)
    expected = before if skipped else (usual.parameters, usual.optimizer)
    jax.tree.map(np.testing.assert_array_equal, (after.parameters, after.optimizer), expected)


def test_a_batch_in_which_nothing_counts_changes_no_weight(tmp_path: Path) -> None:
    program = program_of(small_job(tmp_path, ignored_token=0, accumulation=2))
    state = program.compile_initial()()
    before = jax.tree.map(np.array, (state.parameters, state.optimizer))
    padding = jax.device_put(np.zeros(program.batch_shape, np.uint8), program.batch_sharding)
    after, result = program.compile_step()(state, padding)
    assert bool(result.skipped)
    jax.tree.map(np.testing.assert_array_equal, (after.parameters, after.optimizer), before)


@pytest.mark.parametrize(("replica", "fsdp", "accumulation"), [(3, 1, 4), (3, 2, 2), (5, 1, 1)])
def test_an_evaluation_with_padding_is_that_of_one_device(
    tmp_path: Path, replica: int, fsdp: int, accumulation: int
) -> None:
    found: list[tuple[float, float]] = []
    for sizes in ({"replica": 1, "fsdp": 1}, {"replica": replica, "fsdp": fsdp, "accumulation": accumulation}):
        job = small_job(tmp_path, min_count=1, **sizes)
        program = program_of(job)
        batch = batches_of(job, program, tmp_path).held_out(0)
        loss, tokens = program.compile_evaluation()(program.compile_initial()().parameters, batch)
        found.append((float(loss), float(tokens)))
    alone, padded = found
    assert padded[1] == alone[1] == 16 * 64
    assert padded[0] == pytest.approx(alone[0], rel=1e-6)


def test_an_evaluation_is_of_the_tokens_that_count(tmp_path: Path) -> None:
    job = small_job(tmp_path, ignored_token=ord(" "))
    program = program_of(job)
    batch = batches_of(job, program, tmp_path).training(0)
    state = program.compile_initial()()
    loss, tokens = program.compile_evaluation()(state.parameters, batch)
    assert float(tokens) == np.sum(np.asarray(batch)[:, 1:] != ord(" ")) < batch.size
    _, trained = program.compile_step()(state, batch)
    assert float(loss) / float(tokens) == pytest.approx(float(trained.loss), rel=1e-6)

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.checkout import ROOT
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import batches_of, program_of
from workloads.spec import JobSpec
from workloads.training.layout import Tree
from workloads.training.step import StepResult

pytestmark = pytest.mark.costs(cpu_seconds=30)


LOWER = """
import sys
from pathlib import Path
from tests.checkout import ROOT
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import program_of
each_step = small_job(Path("unused"), replica=1, fsdp=2, gather_weights="each-step")
for mesh in ({}, {"fsdp": 1, "stage": 2}):
    job = changed(each_step, model={"tied_embedding": False}, mesh=mesh)
    print(program_of(job).lower_step().as_text())
"""
"""Program that gathers all weights at once: over the slice, and as one of two stages."""


def lowered_with_hash_seed(seed: int) -> bytes:
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", LOWER], env=environment, capture_output=True, check=True).stdout


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


@pytest.mark.compiles
def test_the_same_job_compiled_twice_gives_bitwise_the_same_losses(tmp_path: Path) -> None:
    assert losses(tmp_path, 1, 8, 4) == losses(tmp_path, 1, 8, 4)


def test_hosts_lower_the_same_step_whatever_their_hash_seeds() -> None:
    # With these two hash seeds, a set of the weights' names outside of the layers has different orders.
    one, other = lowered_with_hash_seed(1), lowered_with_hash_seed(2)
    assert b"all_gather" in one
    assert hashlib.sha256(one).hexdigest() == hashlib.sha256(other).hexdigest()


def test_loss_falls_in_twenty_steps_of_bfloat16(tmp_path: Path) -> None:
    found = losses(tmp_path, 2, 4, 20, "bfloat16")
    assert found[0] == pytest.approx(np.log(256), abs=0.5)
    assert found[-1] < 0.7 * found[0]


def stepped(job: JobSpec, folder: Path, scale: float = 1, empty: bool = False) -> tuple[Tree, Tree, StepResult]:
    """Return weights and moments before and after a step whose first weights have `scale` times their last norm's.

    The batch of the step has only tokens 0 if it is `empty`.
    """
    program = program_of(job)
    state = program.compile_initial()()
    state.parameters["final_scale"] *= scale
    before = jax.tree.map(np.array, (state.parameters, state.optimizer))
    padding = jax.device_put(np.zeros(program.batch_shape, np.uint8), program.batch_sharding)
    batch = padding if empty else batches_of(job, program, folder).training(0)
    after, result = program.compile_step()(state, batch)
    assert (int(after.step), int(after.batch)) == (1, 1)
    return before, (after.parameters, after.optimizer), result


def test_a_step_that_is_not_finite_or_in_which_nothing_counts_changes_nothing_but_step_and_batch(
    tmp_path: Path,
) -> None:
    for before, after, result in (
        stepped(small_job(tmp_path), tmp_path, scale=np.nan),
        stepped(small_job(tmp_path, ignored_token=0, accumulation=2), tmp_path, empty=True),
    ):
        assert bool(result.skipped)
        jax.tree.map(np.testing.assert_array_equal, after, before)


@pytest.mark.parametrize(("times", "skipped"), [(0.999, True), (1.001, False)])
def test_a_step_whose_gradient_norm_is_above_the_limit_changes_no_weight(
    tmp_path: Path, times: float, skipped: bool
) -> None:
    _, usual, unlimited = stepped(small_job(tmp_path), tmp_path)
    limit = times * float(unlimited.gradient_norm)
    before, after, result = stepped(changed(small_job(tmp_path), optimizer={"skip_norm": limit}), tmp_path)
    assert (bool(unlimited.skipped), bool(result.skipped)) == (False, skipped)
    jax.tree.map(np.testing.assert_array_equal, after, before if skipped else usual)


@pytest.mark.parametrize(("replica", "fsdp", "accumulation"), [(3, 2, 2), (5, 1, 1)])
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

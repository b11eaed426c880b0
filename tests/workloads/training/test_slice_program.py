"""`workloads.training.slice_program`: the parts of a batch together make the step that one JAX world makes."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.workloads.jobs import small_job, validated
from tests.workloads.training.running import batches_of, program_of
from workloads.group.parts import parts_of
from workloads.spec import JobSpec
from workloads.training.data import Batches
from workloads.training.mesh import build_mesh
from workloads.training.rows import load_rows
from workloads.training.slice_program import Shards, SliceProgram

COUNT = 2


def job_of(folder: Path) -> JobSpec:
    return validated(small_job(folder, replica=COUNT, fsdp=2, global_batch=8), slice_failure="continue")


@pytest.mark.costs(cpu_seconds=40)
def test_summed_parts_make_the_same_step_as_one_world(tmp_path: Path):
    job = job_of(tmp_path)
    whole = program_of(validated(job, slice_failure="restart"))
    batches = batches_of(job, whole, tmp_path)
    state = whole.compile_initial()()
    expected, result = whole.compile_step()(state, batches.training(0))

    alone = job.of_one_slice
    mesh = build_mesh(alone.mesh, alone.slices, jax.devices()[:2])
    with ThreadPoolExecutor(1) as compiler:
        program = SliceProgram(alone, mesh, compiler)
        rows = load_rows(job.data, job.model.vocab_size, job.training.sequence_length, tmp_path)
        parts = Batches(rows, alone.training, program.batch_sharding, COUNT)
        own = program.compile_initial()()
        found = [program.gradients(own, parts.training(part)) for part in parts_of(0, COUNT)]
        sums = sum(each.sums for each in found)
        vector = sum(each.vector.astype(np.float32) for each in found)
        assert isinstance(sums, np.ndarray)
        assert isinstance(vector, np.ndarray)
        after, one = program.update(own, sums, vector, batch=1)

    assert float(one.loss) == pytest.approx(float(result.loss), rel=1e-6)
    assert float(one.gradient_norm) == pytest.approx(float(result.gradient_norm), rel=1e-5)
    assert (int(after.step), int(after.batch)) == (1, 1)
    for left, right in zip(jax.tree.leaves(after.parameters), jax.tree.leaves(expected.parameters), strict=True):
        np.testing.assert_allclose(np.asarray(left), np.asarray(right), atol=2e-5)


def test_the_shards_of_a_tree_make_the_same_tree_again(tmp_path: Path):
    job = job_of(tmp_path).of_one_slice
    program = program_of(job)
    state = program.compile_initial()()
    shards = Shards(program.state_shapes, np.dtype(np.float32))

    arrays = shards.host_arrays(state)

    assert [(each.shape, each.dtype) for each in shards.empty()] == [(each.shape, each.dtype) for each in arrays]
    again = shards.put([np.array(each) for each in arrays])
    for left, right in zip(jax.tree.leaves(state), jax.tree.leaves(again), strict=True):
        assert left.sharding == right.sharding
        np.testing.assert_array_equal(np.asarray(left), np.asarray(right))

from pathlib import Path

import jax
import pytest

from tests.workloads.jobs import small_job
from workloads.spec import JobSpec
from workloads.training.failures import OutOfMemory
from workloads.training.memory import advice, bytes_per_device, fitting
from workloads.training.mesh import build_mesh
from workloads.training.step import Program, TrainState

GIB = 2**30


def job_on_chips(hbm_gib: float, global_batch: int) -> JobSpec:
    job = small_job(Path("somewhere"), global_batch=global_batch)
    return job.model_copy(update={"slices": job.slices.model_copy(update={"hbm_gib_per_chip": hbm_gib})})


@pytest.mark.parametrize(
    ("hbm_gib", "global_batch", "state_gib", "change"),
    [
        (16.0, 64, 4, "set training.global_batch to 32 or take slices of more chips than 4"),
        (16.0, 8, 4, "take slices of more chips than 4 or shorten training.sequence_length"),
        (16.0, 64, 40, "take slices of more chips than 4, at least 3 times as many"),
        (0.0, 24, 4, "set training.global_batch to 8 or take slices"),
    ],
)
def test_what_would_fit_is_said(hbm_gib: float, global_batch: int, state_gib: int, change: str) -> None:
    assert change in advice(job_on_chips(hbm_gib, global_batch), state_gib * GIB)


def state_shapes() -> TrainState:
    job = small_job(Path("somewhere"))
    return Program(job, build_mesh(job.mesh, job.slices, jax.devices())).state_shapes


def test_a_state_is_counted_as_it_lies_on_a_device() -> None:
    job = small_job(Path("somewhere"))
    program = Program(job, build_mesh(job.mesh, job.slices, jax.devices()))
    state = program.compile_initial()()
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    assert bytes_per_device(program.state_shapes) == held


def test_lack_of_memory_is_recognised_and_other_errors_pass() -> None:
    job, shapes = small_job(Path("somewhere")), state_shapes()
    with pytest.raises(OutOfMemory, match="does not fit .*RESOURCE_EXHAUSTED"), fitting(job, shapes):
        jax.numpy.zeros(1 << 48).block_until_ready()
    with pytest.raises(KeyError), fitting(job, shapes):
        raise KeyError("x")

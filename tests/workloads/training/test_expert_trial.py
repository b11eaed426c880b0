"""What the trial of experts' products compares, and its programs for TPUs."""

from pathlib import Path

import jax
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.preflight.jobs import slices_of
from workloads.preflight.topology import describe_devices
from workloads.spec import ExpertsSpec
from workloads.training.expert_trial import ExpertPart
from workloads.training.kernel_trial import TOLERANCE, trial
from workloads.training.megablox import Megablox

pytestmark = pytest.mark.costs(cpu_seconds=10)

PART = ExpertPart(
    embed_dim=128, mlp_dim=256, experts=4, rows=512, dtype="bfloat16", activation="silu", vmem_kib=16 << 10
)


def test_right_kernels_pass_and_one_that_ignores_the_groups_does_not() -> None:
    def one_group(rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
        return rows @ matrices[0]

    kernels = {"megablox": Megablox(16 << 10, interpret=True), "ragged-dot": jax.lax.ragged_dot, "wrong": one_group}
    right, also_right, wrong = trial(PART, kernels, jax.devices()[0], {})
    assert right.fault == also_right.fault == ""
    assert 0 < right.difference < TOLERANCE / 2
    assert wrong.fault


def test_groups_to_compare_begin_within_a_block_and_one_is_empty() -> None:
    (_, _, sizes), _ = PART.compared.inputs(jax.devices()[0])
    begins = [int(sizes[:number].sum()) for number in range(len(sizes))]
    assert 0 in sizes
    assert sizes.sum() == PART.compared.rows
    assert all(begin % 128 for begin in begins[1:])


@pytest.mark.complete
@pytest.mark.parametrize(("generation", "topology"), [("v6e", "2x2"), ("v5p", "2x2x1")])
def test_every_trial_compiles_for_the_chips(generation: str, topology: str) -> None:
    experts = ExpertsSpec(count=8, per_token=2, balance_weight=0)
    sizes = {"experts": experts, "embed_dim": 4096, "mlp_dim": 14336}
    job = changed(small_job(Path("unused"), sequence_length=4096, compute_dtype="bfloat16"), model=sizes)
    job = job.model_copy(update={"slices": slices_of(generation, topology)})
    device = describe_devices(job.slices, job.libtpu_args)[0]
    part = ExpertPart.of(job, experts.per_token, experts.count)
    assert [*part.candidates("tpu")] == ["megablox", "ragged-dot"]
    for kernel in part.candidates("tpu").values():
        part.compiled(kernel, device, job.compiler_options)

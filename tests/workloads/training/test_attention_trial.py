"""What the trial of attention kernels compares, and its programs for TPUs."""

from dataclasses import replace
from pathlib import Path

import jax
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.preflight.jobs import slices_of
from tests.workloads.training.attention_kernels import MODEL, PART
from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.attention import Sequence
from workloads.training.attention_trial import CANDIDATES, AttentionPart
from workloads.training.kernel_trial import TOLERANCE, trial
from workloads.training.kernels.attention import HeadShape, fused_attention

pytestmark = pytest.mark.costs(cpu_seconds=5)


def test_the_comparison_is_of_blocks_as_large_as_the_job_s() -> None:
    part = replace(PART, positions=8192)
    parts = {8192: 4096, 4096: 4096, 9216: 3072, 131072: 4096, 8320: 1664, 100: 100}
    assert {length: replace(part, positions=length).compared.positions for length in parts} == parts
    assert (part.compared.kv_heads, part.compared.sequences) == (1, 1)


def test_the_project_s_own_kernel_is_right_in_the_numbers_that_jobs_compute_with() -> None:
    model = MODEL.model_copy(update={"head_dim": 64})
    part = AttentionPart(model, kv_heads=1, sequences=1, positions=384, dtype="bfloat16", segmented=False)

    def interpreted(projected: jax.Array, sequence: Sequence) -> jax.Array:
        shape = HeadShape(1, model.queries_per_kv_head, model.head_dim)
        turn = (sequence.rotation.cos, sequence.rotation.sin)
        return fused_attention(projected, turn, sequence.segments, shape=shape, interpret=True)

    found = trial(part, {"fused": interpreted}, jax.devices()[0], {"xla_backend_optimization_level": 0})[0]
    assert found.fault == ""
    assert 0 < found.difference < TOLERANCE / 2


def of_chips(generation: str, topology: str, head_dim: int) -> JobSpec:
    heads = {"query_heads": 32, "kv_heads": 8, "head_dim": head_dim, "embed_dim": 2048}
    job = small_job(Path("unused"), sequence_length=8192, compute_dtype="bfloat16", global_batch=16)
    return changed(job, model=heads).model_copy(update={"slices": slices_of(generation, topology)})


@pytest.mark.complete
@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize(("generation", "topology"), [("v6e", "2x2"), ("v5p", "2x2x1"), ("v5e", "2x2")])
def test_every_trial_compiles_for_the_chips(generation: str, topology: str, head_dim: int) -> None:
    job = of_chips(generation, topology, head_dim)
    devices = describe_devices(job.slices, job.libtpu_args)
    kernels = AttentionPart.of(job).candidates("tpu")
    assert [*kernels] == [*CANDIDATES]
    for mix in kernels.values():
        replace(AttentionPart.of(job), kv_heads=1, sequences=1).compiled(mix, devices[0], job.compiler_options)

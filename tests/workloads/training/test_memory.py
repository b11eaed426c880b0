import re
from pathlib import Path
from typing import Any

import jax
import pytest

from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import program_of
from workloads.spec import JobSpec, MeshSpec
from workloads.training.failures import OutOfMemory
from workloads.training.memory import advice, bytes_per_device, fitting
from workloads.training.step import Program

GIB = 2**30


def job_on_chips(hbm_gib: float = 16.0, mesh: MeshSpec | None = None, **training: Any) -> JobSpec:
    job = changed(small_job(Path("somewhere"), **training), slices={"hbm_gib_per_chip": hbm_gib})
    return job.model_copy(update={"mesh": mesh or job.mesh})


TENSOR_2 = MeshSpec(replica=2, fsdp=2, tensor=2)


@pytest.mark.parametrize(
    ("job", "at_once", "changes"),
    [
        (job_on_chips(global_batch=48), 6, "accumulation to 2, or set training.remat to full"),
        (
            job_on_chips(global_batch=48, accumulation=3, remat="full"),
            2,
            "accumulation to 6, or set training.remat to offload",
        ),
        (job_on_chips(global_batch=8, remat="offload", gather_weights="each-step"), 1, "gather_weights to each-layer"),
        (job_on_chips(global_batch=8, remat="offload", attention="reference"), 1, "attention to splash"),
        (job_on_chips(mesh=TENSOR_2, global_batch=8, remat="offload"), 2, "accumulation to 2"),
    ],
)
def test_what_a_step_would_fit_with_is_said(job: JobSpec, at_once: int, changes: str) -> None:
    found = advice(job, 4 * GIB)
    assert (
        f"{at_once} sequences at once the rest; set training.{changes}, or take slices of more chips than 1x4" in found
    )


def test_what_a_state_would_fit_on_is_said() -> None:
    assert advice(job_on_chips(), 40 * GIB).endswith(
        "40.00 GiB of 16.0 GiB and 2 sequences at once the rest; take slices of more chips than 1x4, at least 3 times"
        " as many"
    )
    repeated = job_on_chips(mesh=MeshSpec(replica=4, fsdp=2))
    assert "; raise mesh.fsdp, of which a slice has room for 2 times, or take" in advice(repeated, 40 * GIB)


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(small_job(Path("somewhere")))


def test_a_state_is_counted_as_it_is_on_a_device(program: Program) -> None:
    state = program.compile_initial()()
    held = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(state))
    assert bytes_per_device(program.state_shapes) == held


NO_VMEM = """\
RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space vmem. Used 82.37M of 63.94M vmem.
Exceeded vmem capacity by 18.43M."""
SCOPED_VMEM = """\
RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %jvp_causal_attention_forward_.1"""


@pytest.mark.parametrize("words", [NO_VMEM, SCOPED_VMEM])
def test_a_kernel_that_needs_too_much_vmem_is_not_helped_by_larger_slices(words: str, program: Program) -> None:
    with pytest.raises(OutOfMemory) as stop, fitting(job_on_chips(attention="fused"), program.state_shapes):
        raise jax.errors.JaxRuntimeError(words)
    found = str(stop.value)
    assert "set training.attention to splash" in found
    assert "RESOURCE_EXHAUSTED" in found
    assert not re.search(r"remat|more chips|accumulation", found)


def test_lack_of_memory_is_recognised_and_other_errors_pass(program: Program) -> None:
    job, shapes = small_job(Path("somewhere")), program.state_shapes
    with pytest.raises(OutOfMemory, match="does not fit .*RESOURCE_EXHAUSTED"), fitting(job, shapes):
        jax.numpy.zeros(1 << 48).block_until_ready()
    with pytest.raises(KeyError), fitting(job, shapes):
        raise KeyError("x")

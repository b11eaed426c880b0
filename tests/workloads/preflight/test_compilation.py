import os
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import Mesh

from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.preflight.scan import lowered_scan
from workloads.preflight.compilation import compile_for_account
from workloads.preflight.estimate import account
from workloads.preflight.topology import describe_devices
from workloads.preflight.traffic import Kind, Total
from workloads.training.mesh import build_mesh

LAYERS, EMBED, TOKENS = 5, 1024, 512


@pytest.fixture(scope="module")
def mesh() -> Mesh:
    pytest.importorskip("libtpu")
    spec = v6e_job()
    return build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, {}))


def test_a_program_compiled_for_absent_chips_does_what_its_source_says(mesh: Mesh) -> None:
    compilation = compile_for_account(lowered_scan(mesh, LAYERS, EMBED, TOKENS).compile)
    done = account(compilation.text)
    layer = EMBED * EMBED * 2
    assert done.matmul_flops == LAYERS * 2 * TOKENS * EMBED * EMBED
    assert done.ici == {Kind.ALL_GATHER: Total(LAYERS, LAYERS * layer, LAYERS * layer * 15 / 16)}
    assert done.dcn == {"ALL_REDUCE": Total(1, LAYERS * layer // 16, LAYERS * layer // 16)}
    # It is no faster than the matrix units with 524288 FLOPs per cycle.
    assert done.cycles > done.matmul_flops / 524288
    assert "lowered_scan.step.layer:" in {each.source.rstrip("0123456789") for each in done.operations}
    assert compilation.excess is None
    assert compilation.memory
    arguments = (TOKENS * EMBED + LAYERS * EMBED * EMBED // 16) * 2
    assert compilation.memory.arguments_gib == pytest.approx(arguments / 2**30)


def test_a_kernel_that_does_not_fit_the_vmem_is_not_taken_for_a_program_that_does_not_fit_the_device() -> None:
    def compile_program(options: dict[str, Any]) -> jax.stages.Compiled:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem. Used 82.37M")

    with pytest.raises(jax.errors.JaxRuntimeError, match="space vmem"):
        compile_for_account(compile_program)


def test_the_compiler_s_complaint_about_a_copy_in_full_is_kept(capfd: pytest.CaptureFixture[str]) -> None:
    def compile_program(options: dict[str, Any]) -> jax.stages.Compiled:
        os.write(
            2, b"W0000 spmd_partitioner.cc] Involuntary full rematerialization. The compiler cannot go from\nnoise\n"
        )
        return jax.jit(lambda x: x + 1).lower(jnp.float32(0)).compile()

    compilation = compile_for_account(compile_program)
    assert compilation.complaints == (
        "W0000 spmd_partitioner.cc] Involuntary full rematerialization. The compiler cannot go from",
    )
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"

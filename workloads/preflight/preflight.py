"""From a JobSpec to its report.

Owns the order of things: target, program, compilation, account, estimate.
"""

import jax

from workloads.preflight.compilation import Compilation, compile_for_account
from workloads.preflight.estimate import account, estimate
from workloads.preflight.report import Report
from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.mesh import build_mesh
from workloads.training.step import Program


def compile_step(spec: JobSpec) -> Compilation:
    """Compile the step of `spec` for its chips.

    Raises:
        Unsupported: this machine has no compiler for them.
        InvalidSpec: the mesh is not one of those devices.
        jax.errors.JaxRuntimeError: the compiler refuses the step, for another reason than memory.
    """

    def compile_program() -> jax.stages.Compiled:
        return Program(spec, build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices))).compile_step()

    # The target is described in there too, for libtpu then complains that this machine has no TPU.
    return compile_for_account(compile_program)


def report_on(spec: JobSpec, text: str, compilation: Compilation | None = None) -> Report:
    """Account for `text`, the compiled step of `spec`; it is empty when the step does not fit."""
    done = account(text) if text else None
    return Report(spec, compilation, done, estimate(spec, done) if done else None)

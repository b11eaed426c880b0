"""From a JobSpec to its report.

Owns the order of things: target, program, compilation, account, estimate.
"""

from workloads.preflight.compilation import compile_for_account
from workloads.preflight.estimate import account, estimate
from workloads.preflight.report import Report
from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.mesh import build_mesh
from workloads.training.step import Program


def preflight(spec: JobSpec, text: str | None = None) -> Report:
    """Compile the step of `spec`, or read the compiled program in `text`, and account for it.

    Raises:
        Unsupported: this machine has no compiler for the job's chips.
    """
    compilation = None
    if text is None:
        program = Program(spec, build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices)))
        compilation = compile_for_account(program.lower_step)
        text = compilation.text
    done = account(text) if text else None
    return Report(spec, compilation, done, estimate(spec, done) if done else None)

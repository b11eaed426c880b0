"""Compiles the step of a JobSpec and reports on it: target, program, compilation, account, estimate."""

from jax.sharding import Mesh

from workloads.preflight.compilation import Compilation, compile_for_account
from workloads.preflight.estimate import account, estimate
from workloads.preflight.kernels import settle
from workloads.preflight.report import Report
from workloads.preflight.topology import check_arguments, describe_devices
from workloads.spec import JobSpec
from workloads.training.memory import bytes_per_device
from workloads.training.mesh import build_mesh
from workloads.training.step import Program


def compile_step(spec: JobSpec) -> Compilation:
    """Compile the step of `spec` for its chips.

    Raises:
        Unsupported: this machine has no compiler for them, or libtpu refuses the job's arguments.
        InvalidSpec: the mesh does not fit those devices.
        jax.errors.JaxRuntimeError: the compiler refuses the step for another reason than memory.
    """

    check_arguments(spec)
    # The target is described inside too, because libtpu then complains that this machine has no TPU.
    return compile_for_account(lambda options: _program(settle(spec)).compile_step(**options))


def report_on(spec: JobSpec, text: str, compilation: Compilation | None = None) -> Report:
    """Report on `text`, the compiled step of `spec`. It is empty if the step does not fit."""
    done = account(text) if text else None
    return Report(spec, compilation, done, estimate(spec, done) if done else None)


def compile_others(spec: JobSpec) -> None:
    """Compile the other programs of an attempt of the trainer, so that they are in JAX's compilation cache."""
    program = _program(settle(spec))
    program.compile_initial()
    program.compile_evaluation()


def state_gib(spec: JobSpec) -> float:
    """Return the GiB of training state and frozen weights on a device, without compiling."""
    return bytes_per_device(_program(spec).device_state_shapes) / 2**30


def _program(spec: JobSpec) -> Program:
    return Program(spec, _mesh(spec))


def _mesh(spec: JobSpec) -> Mesh:
    return build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, spec.libtpu_args))

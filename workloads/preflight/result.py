"""Compiles the step of a JobSpec, reports on it, and makes the preflight's result for the preview.

If there is no answer, the result has the reason. If the step does not fit, remedies are tried, one compilation after
the other.
"""

from collections.abc import Callable, Iterator
from typing import Any

from jax.errors import JaxRuntimeError

from workloads.preflight.compilation import Compilation, compile_for_account
from workloads.preflight.estimate import Account, account, estimate
from workloads.preflight.kernels import likely, settle
from workloads.preflight.remedies import Change, Outcome, remedies
from workloads.preflight.report import Report
from workloads.preflight.topology import check_arguments, describe_devices
from workloads.preflight_result import (
    Alternative,
    PreflightResult,
    Remedy,
    preflight_key,
    quoted,
    versions,
)
from workloads.spec import JobSpec, chips
from workloads.spec.chips import Unsupported
from workloads.training.failures import InvalidSpec
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
    return Program(spec, build_mesh(spec.mesh, spec.slices, describe_devices(spec.slices, spec.libtpu_args)))


def preflight(
    spec: JobSpec, report_progress: Callable[[str], None], fill_cache: bool, compare: bool = False
) -> PreflightResult:
    """Compile the step of `spec` and, if it does not fit, changes that may fit.

    `report_progress` is called before each compilation. With `fill_cache`, also compile the trainer's other programs
    for JAX's compilation cache. With `compare`, also compile the step with the other value of `compile`.
    """
    try:
        report_progress("the job as it is")
        compilation, report = _compiled(spec)
        tried = () if report.done else _remedies(spec, report_progress)
        alternative = _alternative(spec, report_progress) if compare else None
        if fill_cache and report.done:
            report_progress("initial weights and evaluation, for the compilation cache")
            compile_others(spec)
    except (Unsupported, InvalidSpec) as fault:
        return PreflightResult(**_job_fields(spec), unsupported=str(fault))
    except JaxRuntimeError as fault:
        return PreflightResult(**_job_fields(spec), unsupported=f"the compiler refuses the step: {fault}")
    done, estimate = report.done, report.estimate
    return PreflightResult(
        **_job_fields(spec),
        fits=done is not None,
        peak_gib=compilation.memory.peak_gib if compilation.memory else None,
        needed_gib=_needed_gib(compilation),
        usable_gib=chips.chip_of(spec.slices).usable_hbm_gib_per_device,
        biggest_arrays=compilation.biggest_arrays,
        remedies=tried,
        steps=estimate.steps if estimate else (),
        ici_sent_bytes={kind.value: total.sent_bytes for kind, total in done.ici.items()} if done else {},
        dcn_sent_bytes={kind: total.sent_bytes for kind, total in done.dcn.items()} if done else {},
        dcn_exposed_seconds=estimate.dcn_exposed_seconds if estimate else None,
        kernels=tuple(kernel.sentence for kernel in likely(spec)),
        warnings=(*compilation.complaints, *(_left_out(done) if done else ())),
        alternative=alternative,
        compile_wall_seconds=compilation.wall_seconds,
        compile_cpu_seconds=compilation.cpu_seconds,
    )


def _compiled(spec: JobSpec) -> tuple[Compilation, Report]:
    compilation = compile_step(spec)
    return compilation, report_on(spec, compilation.text, compilation)


def _alternative(spec: JobSpec, report_progress: Callable[[str], None]) -> Alternative | None:
    other = spec.compiled_otherwise()
    if other is None:
        return None
    report_progress(f"instead compile: {other.compiler.compile}")
    compilation, report = _compiled(other)
    return Alternative(
        compile=other.compiler.compile,
        fits=report.done is not None,
        seconds=_quoted_seconds(report),
        compile_cpu_seconds=compilation.cpu_seconds,
    )


def _remedies(spec: JobSpec, report_progress: Callable[[str], None]) -> tuple[Remedy, ...]:
    def compiled(change: Change) -> Outcome:
        report_progress(f"instead {change.words}")
        try:
            compilation, report = _compiled(change.spec)
        except JaxRuntimeError:
            return Outcome(False, None, None)
        return Outcome(report.done is not None, _needed_gib(compilation), _quoted_seconds(report))

    return remedies(spec, state_gib, chips.chip_of(spec.slices).usable_hbm_gib_per_device, compiled)


def _job_fields(spec: JobSpec) -> dict[str, Any]:
    return {
        "key": preflight_key(spec),
        "versions": versions(),
        "generation": spec.slices.generation,
        "topology": spec.slices.topology,
        "slices": spec.slices.count,
        "chips": spec.slices.chips,
    }


def _left_out(done: Account) -> Iterator[str]:
    """Yield sentences about what the estimate leaves out."""
    if done.unpriced:
        lines = sorted({operation.source for operation in done.unpriced})
        yield f"not in the estimate, because the compiler gives no cycles: {', '.join(lines)}"
    for kernel in done.kernels:
        if kernel.flops is None:
            yield f"not in the estimate: kernel {kernel.name}, {kernel.basis}"
    if done.schedule.unknown_loops:
        yield f"loops whose trip count is unknown count once: {', '.join(done.schedule.unknown_loops)}"


def _needed_gib(compilation: Compilation) -> float | None:
    if compilation.memory:
        return compilation.memory.peak_gib
    return compilation.excess.needed_gib if compilation.excess else None


def _quoted_seconds(report: Report) -> float | None:
    step = quoted(report.estimate.steps) if report.estimate else None
    return step and step.seconds

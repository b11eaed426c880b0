"""Chooses the kernels with which the preflight compiles a job that leaves them to `auto`.

Which kernel is the fastest is only known on the chips. The preflight takes the first one, in the estimated order, that
compiles for them.
"""

from dataclasses import dataclass
from functools import cache

from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec
from workloads.training.kernel_choice import Choice, parts
from workloads.training.kernel_trial import TriedPart


@dataclass(frozen=True)
class Likely:
    """The kernel that `auto` will most likely choose."""

    setting: str
    kernel: str
    refused: tuple[str, ...]
    """Kernels before it in the order, each with the compiler's error."""

    @property
    def sentence(self) -> str:
        """Return a sentence about the choice."""
        passed_over = "".join(f"; {refused}" for refused in self.refused)
        return (
            f"training.{self.setting} auto: compiled with {self.kernel}, the first by estimate that compiles for these"
            f" chips{passed_over}; the job chooses by a test on its own chips"
        )


def settle(spec: JobSpec) -> JobSpec:
    """Return `spec` with the kernels that the preflight compiles.

    Raises:
        Unsupported: this machine has no compiler for the job's chips.
    """
    return Choice({found.setting: found.kernel for found in likely(spec)}).made_in(spec)


def likely(spec: JobSpec) -> tuple[Likely, ...]:
    """Return what `auto` will most likely choose for each setting of `spec` with this value."""
    return _likely(spec.model_dump_json())


@cache
def _likely(spec_text: str) -> tuple[Likely, ...]:
    spec = JobSpec.model_validate_json(spec_text)
    left = [part for part in parts(spec) if getattr(spec.training, part.setting) == "auto"]
    return tuple(_first_that_compiles(part, spec) for part in left)


def _first_that_compiles(part: TriedPart, spec: JobSpec) -> Likely:
    device = describe_devices(spec.slices, spec.libtpu_args)[0]
    refused: list[str] = []
    for kernel, compute in part.candidates("tpu").items():
        try:
            part.compiled_alone.compiled(compute, device, spec.compiler_options)
        except Exception as fault:  # noqa: BLE001 - as in the trial: the job can use another kernel
            refused.append(f"{kernel} does not compile ({str(fault).splitlines()[0]})")
        else:
            return Likely(part.setting, kernel, tuple(refused))
    return Likely(part.setting, part.plain, tuple(refused))

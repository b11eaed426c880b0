"""Chooses the attention kernel with which the preflight compiles a job with `training.attention: auto`.

Which kernel is the fastest is only known on the chips. The preflight takes the first kernel, in the estimated order,
that compiles for them.
"""

from dataclasses import dataclass, replace
from functools import cache

from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec, Kernel
from workloads.training.attention_trial import Choice, Layer, candidates


@dataclass(frozen=True)
class Likely:
    """The kernel that `auto` will most likely choose."""

    kernel: Kernel
    refused: tuple[str, ...]
    """Kernels before it in the order, each with the compiler's error."""

    @property
    def sentence(self) -> str:
        """Return a sentence about the choice."""
        passed_over = "".join(f"; {refused}" for refused in self.refused)
        return (
            f"training.attention auto: compiled with {self.kernel}, the first by estimate that compiles for these"
            f" chips{passed_over}; the job chooses by a test on its own chips"
        )


def settle(spec: JobSpec) -> JobSpec:
    """Return `spec` with the kernel that the preflight compiles.

    Raises:
        Unsupported: this machine has no compiler for the job's chips.
    """
    found = likely(spec)
    return spec if found is None else Choice(found.kernel).made_in(spec)


def likely(spec: JobSpec) -> Likely | None:
    """Return what `auto` will most likely choose for `spec`. `None` if a kernel is set."""
    if spec.training.attention != "auto":
        return None
    return _likely(spec.model_dump_json())


@cache
def _likely(spec_text: str) -> Likely:
    spec = JobSpec.model_validate_json(spec_text)
    device = describe_devices(spec.slices, spec.libtpu_args)[0]
    # Kernels process sequences one after the other, so one sequence is enough to compile them.
    layer = replace(Layer.of(spec), sequences=1)
    refused: list[str] = []
    for kernel, mix in candidates("tpu", layer.model).items():
        try:
            layer.compiled(mix, device, spec.compiler_options)
        except Exception as fault:  # noqa: BLE001 - as in the trial: the job can use another kernel
            refused.append(f"{kernel} does not compile ({str(fault).splitlines()[0]})")
        else:
            return Likely(kernel, tuple(refused))
    return Likely("reference", tuple(refused))

"""The attention kernel that a job with `training.attention: auto` is compiled with before it runs.

Only the chips can tell which kernel is the fastest. Until then it is the first in the order of the estimate that
compiles for them.
"""

from dataclasses import dataclass, replace
from functools import cache

from workloads.preflight.topology import describe_devices
from workloads.spec import JobSpec, Kernel
from workloads.training.attention_trial import Choice, Layer, candidates


@dataclass(frozen=True)
class Likely:
    """What `auto` would most probably choose."""

    kernel: Kernel
    refused: tuple[str, ...]
    """Kernels before it in the order, with what the compiler says of each."""

    @property
    def sentence(self) -> str:
        """What people are told of it."""
        passed_over = "".join(f"; {refused}" for refused in self.refused)
        return (
            f"training.attention auto: compiled with {self.kernel}, the first by the estimate that compiles for these"
            f" chips{passed_over}; the job chooses by a trial on its own chips"
        )


def settled(spec: JobSpec) -> JobSpec:
    """`spec` with the kernel that the preflight compiles.

    Raises:
        Unsupported: this machine has no compiler for the job's chips.
    """
    found = likely(spec)
    return spec if found is None else Choice(found.kernel).made_in(spec)


def likely(spec: JobSpec) -> Likely | None:
    """What `auto` would most probably choose for `spec`; None if a kernel is set."""
    if spec.training.attention != "auto":
        return None
    return _likely(spec.model_dump_json())


@cache
def _likely(spec_text: str) -> Likely:
    spec = JobSpec.model_validate_json(spec_text)
    device = describe_devices(spec.slices, spec.libtpu_args)[0]
    # Kernels take one sequence after the other, so for their compilation one is enough.
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

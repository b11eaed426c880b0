"""Chooses the kernels of a job whose settings are `auto`, part of a layer by part: attention, and experts' products.

On TPUs, each host of the first slice tries the kernels on one of its devices, and all hosts choose by these results. A
run that continues on the same kind of chips keeps its kernels, so that its losses are bitwise equal to those of an
uninterrupted run, unless a kernel cannot be used any more. Other devices try nothing.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from jax.sharding import Mesh

from workloads.progress import KernelChanged, KernelChosen, Line
from workloads.spec import JobSpec
from workloads.training.attention_trial import AttentionPart
from workloads.training.expert_trial import ExpertPart
from workloads.training.kernel_trial import Compute, Finding, TriedPart, choose, lines, merge, trial
from workloads.training.runs import recorded_kernel
from workloads.training.runtime import Processes


@dataclass(frozen=True)
class Choice:
    """The kernels of this attempt by setting of `training`, and the lines to print about them."""

    kernels: Mapping[str, str]
    lines: tuple[Line, ...] = ()

    def made_in(self, spec: JobSpec) -> JobSpec:
        return spec.model_copy(update={"training": spec.training.model_copy(update=dict(self.kernels))})


def parts(spec: JobSpec) -> Iterator[TriedPart]:
    """Yield the parts of a layer that several kernels can compute."""
    yield AttentionPart.of(spec)
    if experts := spec.model.experts:
        yield ExpertPart.of(spec, experts.per_token, experts.count)


def settle(spec: JobSpec, mesh: Mesh, options: Mapping[str, Any], processes: Processes) -> Choice:
    """Return the kernels that all processes of the job compute with. All of them must call this function."""
    kernels: dict[str, str] = {}
    said: list[Line] = []
    for part in parts(spec):
        kernels[part.setting], more = _settled(part, spec, mesh, options, processes)
        said += more
    return Choice(kernels, tuple(said))


def _settled(
    part: TriedPart, spec: JobSpec, mesh: Mesh, options: Mapping[str, Any], processes: Processes
) -> tuple[str, list[Line]]:
    """Return the kernel of one part, and the lines to print about it."""
    device, key = mesh.local_devices[0], part.setting
    set_to: str = getattr(spec.training, key)
    kernels = part.candidates(device.platform)
    if not kernels:
        return part.plain, []
    if set_to != "auto":
        return set_to, []
    processes.deadline.expect(f"the trial of the kernels of {part.name}", spec.training.prepare_minutes)
    chips = spec.slices.generation
    earlier: str | None = processes.share(f"{key}/earlier", lambda: recorded_kernel(spec.storage, key, chips))
    tries = processes.index < spec.slices.hosts

    def run_trial(key: str, some: Mapping[str, Compute]) -> list[Finding]:
        own = trial(part, some, device, options) if tries else []
        return merge(some, processes.gather(key, (processes.host, [asdict(finding) for finding in own])))

    if earlier is None:
        return choose(part, run_trial(key, kernels), chips)
    kept = run_trial(f"{key}/kept", {earlier: kernels[earlier]} if earlier in kernels else {})
    if not any(finding.fault for finding in kept):
        reason = "the run's earlier attempts used it"
        return earlier, [*lines(part, kept), KernelChosen(part.name, earlier, chips, reason)]
    others = {kernel: compute for kernel, compute in kernels.items() if kernel != earlier}
    chosen, said = choose(part, [*kept, *run_trial(key, others)], chips)
    return chosen, [*said, KernelChanged(part.name, earlier, chosen, chips)]

"""Finds changes of a job that make its step fit, by compiling each for the chips.

The global batch, the model and the slices stay the same, because a change of these would be a different job.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from math import inf
from typing import Any

from pydantic import ValidationError

from workloads.preflight_result import Remedy
from workloads.spec import JobSpec, MeshSpec
from workloads.spec.fit import distance, legal_meshes
from workloads.training.memory import smaller_steps

TRIES = 10
"""Largest number of compilations. One that does not fit takes seconds, one that fits takes minutes."""

ENOUGH = 2
"""Number of changes that fit after which the search ends."""

_MESHES = 3
"""Number of nearest meshes to try."""


@dataclass(frozen=True)
class Change:
    """A change of the job that does not fit."""

    words: str
    spec: JobSpec


@dataclass(frozen=True)
class Outcome:
    """The compiler's result for a job: whether it fits, and its memory and time."""

    fits: bool
    peak_gib: float | None
    seconds: float | None


def remedies(
    spec: JobSpec, state_gib: Callable[[JobSpec], float], usable_gib: float, compiled: Callable[[Change], Outcome]
) -> tuple[Remedy, ...]:
    """Return the changes of `spec` that were tried, the best first.

    Changes that fit come first, sorted by seconds; equal ones keep the order of least change. A change whose training
    state alone does not fit is left out, because that is known without compiling.
    """
    possible = (change for change in changes(spec) if state_gib(change.spec) < usable_gib)
    found: list[Remedy] = []
    for change in islice(possible, TRIES):
        done = compiled(change)
        found.append(Remedy(change=change.words, fits=done.fits, peak_gib=done.peak_gib, seconds=done.seconds))
        if sum(remedy.fits for remedy in found) == ENOUGH:
            break

    def rank(remedy: Remedy) -> tuple[bool, float]:
        figure = remedy.seconds if remedy.fits else remedy.peak_gib
        return not remedy.fits, inf if figure is None else figure

    return tuple(sorted(found, key=rank))


def changes(spec: JobSpec) -> Iterator[Change]:
    """Yield legal changes, the smallest first: one setting, then several, then the mesh, then all."""
    settings = {name: [{name: value} for value in values] for name, values in smaller_steps(spec).items()}
    kernels, policies, later = (settings[name] for name in ("attention", "remat", "gather_weights"))
    # The next larger number of parts, and the one with parts of one sequence.
    parts = settings["accumulation"][:1] + settings["accumulation"][1:][-1:]
    meshes = [{"mesh": mesh} for mesh in _meshes(spec)]
    alternating = [each for each in chain.from_iterable(zip_longest(parts, policies)) if each]
    last = [*kernels[-1:], *parts[-1:], *policies[-1:], *later]
    strongest = {name: value for change in last for name, value in change.items()}
    several = [strongest] if len(strongest) > 1 else []
    both = [strongest | mesh for mesh in meshes if strongest]
    for change in [*kernels, *alternating, *later, *several, *meshes, *both]:
        values: dict[str, Any] = spec.model_dump() | {"mesh": change.get("mesh", spec.mesh)}
        values["training"] |= {name: value for name, value in change.items() if name != "mesh"}
        try:
            changed = JobSpec.model_validate(values)
        except ValidationError:
            # Its sizes do not fit together.
            continue
        paths = {name: name if name == "mesh" else f"training.{name}" for name in change}
        yield Change(", ".join(f"{paths[name]}: {value}" for name, value in change.items()), changed)


def _meshes(spec: JobSpec) -> list[MeshSpec]:
    """Return the nearest meshes that split the training state into no fewer parts."""
    fewest = spec.mesh.devices // spec.mesh.replica
    legal = legal_meshes(spec.slices, spec.model, spec.training)
    other = [mesh for mesh in legal if mesh != spec.mesh and mesh.devices // mesh.replica >= fewest]
    return sorted(other, key=lambda mesh: distance(mesh, spec.mesh))[:_MESHES]

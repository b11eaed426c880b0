"""Finds changes of a job that make its step fit, by compiling each for the chips.

The global batch, the model and the slices stay the same, because a change of these would be a different job.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from math import inf
from typing import Any, get_args

from pydantic import ValidationError

from workloads.preflight_result import Remedy
from workloads.spec import JobSpec, MeshSpec, Remat
from workloads.spec.fit import distance, legal_meshes

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
    tried = _until_enough((change, compiled(change)) for change in islice(possible, TRIES))
    found = [
        Remedy(change=change.words, fits=done.fits, peak_gib=done.peak_gib, seconds=done.seconds)
        for change, done in tried
    ]
    return tuple(sorted(found, key=_rank))


def _rank(remedy: Remedy) -> tuple[bool, float]:
    figure = remedy.seconds if remedy.fits else remedy.peak_gib
    return not remedy.fits, inf if figure is None else figure


def changes(spec: JobSpec) -> Iterator[Change]:
    """Yield legal changes, the smallest first: one setting, then several, then the mesh, then all."""
    kernels, parts, policies = [*_kernels(spec)], [*_parts(spec)], [*_policies(spec)]
    meshes = [{"mesh": mesh} for mesh in _meshes(spec)]
    later = [*_gathered_later(spec)]
    single = [*kernels, *_alternating(parts, policies), *later]
    strongest = _merge(*kernels[-1:], *parts[-1:], *policies[-1:], *later)
    several = [strongest] if len(strongest) > 1 else []
    for change in [*single, *several, *meshes, *(strongest | mesh for mesh in meshes if strongest)]:
        if (changed := _apply(spec, change)) is not None:
            yield Change(", ".join(f"{_path(name)}: {value}" for name, value in change.items()), changed)


def _until_enough(tried: Iterable[tuple[Change, Outcome]]) -> Iterator[tuple[Change, Outcome]]:
    fitting = 0
    for change, done in tried:
        yield change, done
        fitting += done.fits
        if fitting == ENOUGH:
            return


def _kernels(spec: JobSpec) -> Iterator[dict[str, Any]]:
    if spec.training.attention == "reference":
        yield {"attention": "splash"}


def _parts(spec: JobSpec) -> Iterator[dict[str, Any]]:
    """Yield accumulation with the next larger number of parts, and with parts of one sequence."""
    sequences = spec.rows_per_device
    larger = [parts for parts in range(spec.training.accumulation + 1, sequences + 1) if sequences % parts == 0]
    for parts in sorted({*larger[:1], *larger[-1:]}):
        yield {"accumulation": parts}


def _policies(spec: JobSpec) -> Iterator[dict[str, Any]]:
    """Yield policies that keep less, the one that keeps most first."""
    policies = get_args(Remat)
    for policy in policies[policies.index(spec.training.remat) + 1 :]:
        yield {"remat": policy}


def _gathered_later(spec: JobSpec) -> Iterator[dict[str, Any]]:
    if spec.training.gather_weights == "each-step" and spec.mesh.stage == 1:
        yield {"gather_weights": "each-layer"}


def _meshes(spec: JobSpec) -> list[MeshSpec]:
    """Return the nearest meshes that split the training state into no fewer parts."""
    legal = legal_meshes(spec.slices, spec.model, spec.training)
    other = [mesh for mesh in legal if mesh != spec.mesh and _state_parts(mesh) >= _state_parts(spec.mesh)]
    return sorted(other, key=lambda mesh: distance(mesh, spec.mesh))[:_MESHES]


def _state_parts(mesh: MeshSpec) -> int:
    return mesh.devices // mesh.replica


def _alternating[T](first: Iterable[T], second: Iterable[T]) -> list[T]:
    return [each for each in chain.from_iterable(zip_longest(first, second)) if each is not None]


def _merge(*single: dict[str, Any]) -> dict[str, Any]:
    return {name: value for change in single for name, value in change.items()}


def _path(name: str) -> str:
    return name if name == "mesh" else f"training.{name}"


def _apply(spec: JobSpec, change: dict[str, Any]) -> JobSpec | None:
    """Return `spec` with the change. `None` if its sizes then do not fit together."""
    training = {name: value for name, value in change.items() if name != "mesh"}
    values = spec.model_dump() | {"mesh": change.get("mesh", spec.mesh)}
    values["training"] |= training
    try:
        return JobSpec.model_validate(values)
    except ValidationError:
        return None

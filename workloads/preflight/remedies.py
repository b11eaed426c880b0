"""What would make a step fit: changes of the job, each compiled for the chips.

Owns which changes are tried, in which order, when enough is known, and the ranking. The global batch, the model and
the slices stay as they are: to change them is to want another job.
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
"""Compilations at most. One that does not fit takes seconds, one that fits minutes."""

ENOUGH = 2
"""Changes that fit, after which no more are tried."""

_MESHES = 3
"""The nearest ones alone."""


@dataclass(frozen=True)
class Change:
    """A job like the one that does not fit."""

    words: str
    spec: JobSpec


@dataclass(frozen=True)
class Outcome:
    """What the compiler says of a job: whether it fits, and what it then takes."""

    fits: bool
    peak_gib: float | None
    seconds: float | None


def remedies(
    spec: JobSpec, state_gib: Callable[[JobSpec], float], usable_gib: float, compiled: Callable[[Change], Outcome]
) -> tuple[Remedy, ...]:
    """Changes of `spec` that were tried, the best first: those that fit, by their seconds, least change first.

    What cannot fit by its training state alone is left out, for that is known without a compilation.
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
    """Legal ones, the least first: one setting, then several, then the mesh, then all."""
    kernels, parts, policies = [*_kernels(spec)], [*_parts(spec)], [*_policies(spec)]
    meshes = [{"mesh": mesh} for mesh in _meshes(spec)]
    later = [*_gathered_later(spec)]
    single = [*kernels, *_alternating(parts, policies), *later]
    strongest = _merged(*kernels[-1:], *parts[-1:], *policies[-1:], *later)
    several = [strongest] if len(strongest) > 1 else []
    for change in [*single, *several, *meshes, *(strongest | mesh for mesh in meshes if strongest)]:
        if (changed := _changed(spec, change)) is not None:
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
    """The batch in the next larger number of parts, and in parts of one sequence."""
    sequences = spec.rows_per_device
    larger = [parts for parts in range(spec.training.accumulation + 1, sequences + 1) if sequences % parts == 0]
    for parts in sorted({*larger[:1], *larger[-1:]}):
        yield {"accumulation": parts}


def _policies(spec: JobSpec) -> Iterator[dict[str, Any]]:
    """Those that keep less, the one that keeps most first."""
    policies = get_args(Remat)
    for policy in policies[policies.index(spec.training.remat) + 1 :]:
        yield {"remat": policy}


def _gathered_later(spec: JobSpec) -> Iterator[dict[str, Any]]:
    if spec.training.gather_weights == "each-step" and spec.mesh.stage == 1:
        yield {"gather_weights": "each-layer"}


def _meshes(spec: JobSpec) -> list[MeshSpec]:
    """The nearest that split the training state into no fewer parts."""
    legal = legal_meshes(spec.slices, spec.model, spec.training)
    other = [mesh for mesh in legal if mesh != spec.mesh and _state_parts(mesh) >= _state_parts(spec.mesh)]
    return sorted(other, key=lambda mesh: distance(mesh, spec.mesh))[:_MESHES]


def _state_parts(mesh: MeshSpec) -> int:
    return mesh.devices // mesh.replica


def _alternating[T](first: Iterable[T], second: Iterable[T]) -> list[T]:
    return [each for each in chain.from_iterable(zip_longest(first, second)) if each is not None]


def _merged(*single: dict[str, Any]) -> dict[str, Any]:
    return {name: value for change in single for name, value in change.items()}


def _path(name: str) -> str:
    return name if name == "mesh" else f"training.{name}"


def _changed(spec: JobSpec, change: dict[str, Any]) -> JobSpec | None:
    """`spec` with the change, unless its sizes do not fit together then."""
    training = {name: value for name, value in change.items() if name != "mesh"}
    values = spec.model_dump() | {"mesh": change.get("mesh", spec.mesh)}
    values["training"] |= training
    try:
        return JobSpec.model_validate(values)
    except ValidationError:
        return None

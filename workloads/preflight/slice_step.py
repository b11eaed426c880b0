"""Compiles what one slice runs in a step with `slice_failure: continue`: the gradients of its part, and the update.

Between the two programs, the gradients are summed on the hosts (`workloads.training.slice_program`). What the devices
hold in the meantime is not an argument of the program that runs, so it is added to the compiler's memory.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from workloads.preflight.arrays import SHOWN
from workloads.preflight.compilation import Compilation, Excess, Memory, compile_for_account
from workloads.preflight_result import BigArray
from workloads.spec import JobSpec, chips
from workloads.training.layout import Tree
from workloads.training.memory import bytes_per_device
from workloads.training.slice_program import SliceFunctions

_GIB = 1 << 30


@dataclass(frozen=True)
class _Phase:
    """A part of a step, and what the devices hold in it."""

    needed_gib: float
    arguments_gib: float
    """Part of it that is there before the program runs."""
    arrays: tuple[BigArray, ...]
    excess: Excess | None
    """The compiler's refusal of the program. `None` if it compiles."""

    @property
    def rank(self) -> tuple[bool, float]:
        """Parts that the compiler refuses come last, then those that need the most memory."""
        return self.excess is not None, math.inf if math.isnan(self.needed_gib) else self.needed_gib


def compile_slice(spec: JobSpec, functions: Callable[[], SliceFunctions]) -> Compilation:
    """Compile the programs of one slice of `spec`, which `functions` describes.

    The result has the text of both, and the memory of the part of a step that needs the most.

    Raises:
        jax.errors.JaxRuntimeError: one does not compile for another reason than the memory of a device.
    """
    # The functions are made inside, because libtpu then complains that this machine has no TPU.
    done = [compile_for_account(lambda options: functions().compile_step(**options))]
    if not done[0].excess:
        done.append(compile_for_account(lambda options: functions().compile_update(**options)))
    most = max(_phases(functions(), done), key=lambda phase: phase.rank)
    usable = chips.chip_of(spec.slices).usable_hbm_gib_per_device
    fits = not most.excess and most.needed_gib <= usable
    return Compilation(
        wall_seconds=sum(each.wall_seconds for each in done),
        cpu_seconds=sum(each.cpu_seconds for each in done),
        text="\n".join(each.text for each in done) if fits else "",
        memory=Memory(most.arguments_gib, most.needed_gib - most.arguments_gib, most.needed_gib) if fits else None,
        excess=None if fits else _excess(most, usable),
        biggest_arrays=most.arrays,
        complaints=tuple(complaint for each in done for complaint in each.complaints),
    )


def _phases(functions: SliceFunctions, done: Sequence[Compilation]) -> Iterable[_Phase]:
    """Yield the gradients, the update if it was compiled, and what the devices hold between them and at a save with
    outer steps."""
    held = functions.state_shapes
    state, parameters, frozen = map(_gib, (held, held.parameters, functions.frozen_shapes))
    kept = (
        ("optimizer state, kept for the update", state - parameters),
        ("frozen weights, kept for the next step", frozen),
    )
    yield from (_compiled(each, *beside) for each, beside in zip(done, kept, strict=False))
    if functions.outer_steps:
        sent, summed = map(functions.gradient_shapes, (functions.wire, np.dtype(np.float32)))
        yield _held({"training state": state + frozen, "gradients in two types": _gib(sent) + _gib(summed)})
        yield _held({"training state": state + frozen, "outer parameters and momentum, at a save": 2 * parameters})


def _compiled(compilation: Compilation, kept: str, kept_gib: float) -> _Phase:
    memory, excess = compilation.memory, compilation.excess
    own = memory.peak_gib if memory else excess.needed_gib if excess else math.nan
    arrays = [*compilation.biggest_arrays, *([BigArray(what=kept, shape="", gib=kept_gib)] if kept_gib else [])]
    return _Phase(
        needed_gib=own + kept_gib,
        arguments_gib=(memory.arguments_gib if memory else 0.0) + kept_gib,
        arrays=tuple(sorted(arrays, key=lambda array: -array.gib)[:SHOWN]),
        excess=excess,
    )


def _held(parts: Mapping[str, float]) -> _Phase:
    arrays = tuple(BigArray(what=what, shape="", gib=gib) for what, gib in parts.items())
    return _Phase(sum(parts.values()), sum(parts.values()), arrays, None)


def _excess(most: _Phase, usable_gib: float) -> Excess:
    """Return the excess of a part of a step, with what the devices hold in addition to its program."""
    if most.excess:
        return Excess(most.needed_gib, most.excess.available_gib, most.excess.sentence)
    kept = ", ".join(f"{array.gib:.2f} GiB {array.what}" for array in most.arrays if not array.shape)
    return Excess(most.needed_gib, usable_gib, f"needs {most.needed_gib:.2f} GiB, of which {kept}")


def _gib(shapes: Tree) -> float:
    return bytes_per_device(shapes) / _GIB

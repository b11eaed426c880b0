"""The position of an attempt that resumes from a checkpoint, and its differences from the attempt before.

A legal difference is reported; `runs` refuses the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from workloads.progress import SettingsChanged
from workloads.spec import OptimizerSpec
from workloads.training.optimizer import learning_rate, updates
from workloads.training.runs import Run
from workloads.training.step import TrainState


def settings_change(earlier: Mapping[str, Any], run: Run, state: TrainState) -> SettingsChanged | None:
    """Return the settings that differ from those of the attempt that saved `state`, whose manifest is `earlier`, and
    both learning rates of the next step. `None` if the length and the optimizer are the same."""
    step = int(state.step)
    specs = earlier["spec"], run.manifest["spec"]
    optimizers = [OptimizerSpec.model_validate(spec["optimizer"]) for spec in specs]
    lengths = [spec["training"]["steps"] for spec in specs]
    before, now = (
        {"training.steps": length, **{f"optimizer.{name}": value for name, value in optimizer}}
        for optimizer, length in zip(optimizers, lengths, strict=True)
    )
    changes = [f"{name} {before[name]} to {now[name]}" for name in now if before[name] != now[name]]
    if not changes:
        return None
    done = updates(state.optimizer)
    rates = [
        float(jnp.asarray(learning_rate(optimizer, length)(done)))
        for optimizer, length in zip(optimizers, lengths, strict=True)
    ]
    return SettingsChanged(step, ", ".join(changes), *rates)


@dataclass(frozen=True)
class Position:
    """Position of a run."""

    step: int
    """Number of steps done."""
    batch: int
    """Number of the next batch. A rollback repeats steps, but never batches."""

    @classmethod
    def of(cls, state: TrainState) -> Self:
        return cls(int(state.step), int(state.batch))

    @property
    def next(self) -> "Position":
        return Position(self.step + 1, self.batch + 1)


def at_batch(state: TrainState, number: int) -> TrainState:
    """Return `state` with `number` as its next batch."""
    value = np.asarray(number, state.batch.dtype)
    return replace(state, batch=jax.make_array_from_callback((), state.batch.sharding, lambda _: value))

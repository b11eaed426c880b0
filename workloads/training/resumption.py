"""An attempt that resumes from a checkpoint: its differences from the attempt before, and the step to go back to.

A legal difference is reported; `runs` refuses the others. When too many steps are skipped, which `loop` decides, the
run goes back to an earlier checkpoint that is good enough and takes later data from there, a limited number of times.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np

from workloads.progress import Line, RolledBack, SettingsChanged
from workloads.spec import OptimizerSpec
from workloads.training.checkpoint import Checkpoints, read_record
from workloads.training.failures import Diverged
from workloads.training.optimizer import learning_rate, updates
from workloads.training.runs import Run
from workloads.training.step import CompiledProgram, TrainState


def settings_change(run: Run, state: TrainState) -> SettingsChanged | None:
    """Return the settings that differ from those of the checkpoint that `state` is from, and both learning rates of the
    next step. `None` if the length and the optimizer are the same."""
    step = int(state.step)
    specs = read_record(run.checkpoints / str(step)).manifest["spec"], run.manifest["spec"]
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
        """Return the position of `state`."""
        return cls(int(state.step), int(state.batch))

    @property
    def next(self) -> "Position":
        """Return the position after one more step."""
        return Position(self.step + 1, self.batch + 1)


class Rollbacks:
    """The rollbacks of one attempt. Every process of the job has this object and makes the same calls."""

    def __init__(self, most: int, checkpoints: Checkpoints, program: CompiledProgram, announce: Callable[[Line], None]):
        self._most = most
        self._done = 0
        self._checkpoints = checkpoints
        self._program = program
        self._announce = announce

    def go_back(self, position: Position, skipped: int) -> TrainState:
        """Return an earlier state with the batch at `position` as its next one, after `skipped` steps were skipped.

        Skipped steps change no weights. A checkpoint from one of them, or from the step before them, has the weights
        with which all these batches failed, so the returned state is from before that step.

        Raises:
            Diverged: no rollbacks are left, or there is no such checkpoint.
            NoCheckpoint: none of these checkpoints can be used.
        """
        fault = f"step {position.step}: the loss or gradient of {skipped} steps in a row was not finite or too large"
        advice = (
            "set a lower job.optimizer.learning_rate with job.allow_changes: [optimizer.learning_rate], or check the"
            " data of these steps"
        )
        if self._done == self._most:
            raise Diverged(f"{fault}, after {self._done} of at most {self._most} rollbacks; {advice}")
        before = position.step - skipped
        state = self._checkpoints.go_back(
            before, self._program.state_shapes, self._program.fingerprints, self._announce
        )
        if state is None:
            raise Diverged(f"{fault}, and there is no checkpoint from before step {before} to go back to; {advice}")
        self._done += 1
        found = Position.of(state)
        self._announce(RolledBack(self._done, self._most, position.step, found.step, found.batch, position.batch - 1))
        return _at_batch(state, position.batch)


def _at_batch(state: TrainState, number: int) -> TrainState:
    value = np.asarray(number, state.batch.dtype)
    return replace(state, batch=jax.make_array_from_callback((), state.batch.sharding, lambda _: value))

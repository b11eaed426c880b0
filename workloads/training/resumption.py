"""What a start does differently from the one whose checkpoint it goes on from.

Owns what is legal but must not go unsaid; what is refused is up to `runs`.
"""

import jax.numpy as jnp

from workloads.progress import LengthChanged
from workloads.spec import OptimizerSpec
from workloads.training.checkpoint import read_record
from workloads.training.optimizer import learning_rate, updates
from workloads.training.runs import Run
from workloads.training.step import TrainState


def length_change(run: Run, state: TrainState) -> LengthChanged | None:
    """What another `training.steps` does to the learning rate after the checkpoint that `state` is from."""
    step = int(state.step)
    before, now = read_record(run.checkpoints / str(step)).manifest["spec"], run.manifest["spec"]
    lengths = [spec["training"]["steps"] for spec in (before, now)]
    if lengths[0] == lengths[1]:
        return None
    # Of both starts, or the run would have been refused.
    optimizer = OptimizerSpec.model_validate(now["optimizer"])
    done = updates(state.optimizer)
    rates = [float(jnp.asarray(learning_rate(optimizer, length)(done))) for length in lengths]
    return LengthChanged(step, *lengths, *rates)

"""What a start does differently from the one whose checkpoint it goes on from.

Owns what is legal but must not go unsaid; what is refused is up to `runs`.
"""

import jax.numpy as jnp

from workloads.progress import SettingsChanged
from workloads.spec import OptimizerSpec
from workloads.training.checkpoint import read_record
from workloads.training.optimizer import learning_rate, updates
from workloads.training.runs import Run
from workloads.training.step import TrainState


def settings_change(run: Run, state: TrainState) -> SettingsChanged | None:
    """Which settings are other ones than those of the checkpoint that `state` is from, and the learning rates of the
    next step with both; None if the length and the optimizer are the same."""
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

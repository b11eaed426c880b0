"""Sends a run's curves to Weights & Biases, whose library is not in the trainer's image."""

import tempfile
from importlib import import_module
from typing import Any

from workloads.spec import WandbSpec
from workloads.training.runs import Run
from workloads.training.trackers import Point

LOGIN_SECONDS = 30.0


class WeightsAndBiases:
    """The run in Weights & Biases. It has the same id as the run here and continues in all its attempts.

    https://docs.wandb.ai/ref/python/sdk/functions/init/
    """

    def __init__(self, spec: WandbSpec, job: str, run: Run, close_seconds: float):
        wandb: Any = import_module("wandb")
        self._run = wandb.init(
            project=spec.project,
            entity=spec.entity,
            id=run.id,
            name=job,
            resume="allow",
            config=run.manifest,
            dir=tempfile.mkdtemp(prefix="wandb-"),
            # The exit of the process waits for a login in progress, and without a limit for uploads.
            settings={"console": "off", "init_timeout": LOGIN_SECONDS, "finish_timeout": close_seconds},
        )
        # The library's own step counter drops steps that a restart or rollback repeats.
        self._run.define_metric("*", step_metric="step")

    def log(self, point: Point) -> None:
        self._run.log({"step": point.step, **point.values})

    def close(self, completed: bool) -> None:
        """Send the rest, for a limited time."""
        self._run.finish(exit_code=0 if completed else 1)

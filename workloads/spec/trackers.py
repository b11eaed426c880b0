"""Where the curves of a run are shown, in addition to the files that every run has."""

from operator import not_
from typing import Annotated

from pydantic import Field

from workloads.spec.base import Spec

WANDB_KEY_VARIABLE = "WANDB_API_KEY"
"""Variable from which the library of Weights & Biases takes the key of its user."""


class WandbSpec(Spec):
    """A project of Weights & Biases."""

    project: Annotated[str, Field(min_length=1)]
    entity: Annotated[str | None, Field(min_length=1)] = None
    """User or team that the project belongs to. None: the default of the key's owner."""


class TrackersSpec(Spec):
    """Trackers of the run's curves. None is used unless it is set."""

    tensorboard: Annotated[bool, Field(exclude_if=not_)] = False
    """Whether to write event files for TensorBoard to `runs/<run>/tensorboard`."""
    wandb: Annotated[WandbSpec | None, Field(exclude_if=not_)] = None
    """Project of Weights & Biases to send the curves to. The image needs the package wandb, and the job a secret
    WANDB_API_KEY."""

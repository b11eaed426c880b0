"""Presets: the jobs that ship with the package, minus the hardware."""

from collections.abc import Mapping
from importlib.resources import files

import yaml

from workloads.spec.base import Spec
from workloads.spec.data import DataSpec
from workloads.spec.model import ModelSpec
from workloads.spec.training import OptimizerSpec, TrainingSpec


class Preset(Spec):
    """One job, minus the hardware: a YAML file in `workloads/presets`."""

    model: ModelSpec
    data: DataSpec | None = None
    """None: the job must name its own."""
    optimizer: OptimizerSpec
    training: TrainingSpec

    def model_with(self, values: Mapping[str, object]) -> ModelSpec:
        """The model with these values of its section over those of the preset.

        Raises:
            pydantic.ValidationError: they do not describe a model.
        """
        return ModelSpec.model_validate(self.model.model_dump() | dict(values))


def preset_names() -> list[str]:
    """Names of the presets that ship with the package, sorted."""
    folder = files("workloads") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def load_preset(name: str) -> Preset:
    """The preset `workloads/presets/<name>.yaml`.

    Raises:
        ValueError: no such preset; the message lists those there are.
    """
    if name not in preset_names():
        raise ValueError(f"{name!r} is not a preset; choose one of {', '.join(preset_names())}")
    text = (files("workloads") / "presets" / f"{name}.yaml").read_text()
    return Preset.model_validate(yaml.safe_load(text))

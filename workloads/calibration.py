"""Compares the preflight's estimates with published measurements.

The comparison is in `calibration.yaml` and is shown next to every estimate.
"""

from importlib.resources import files

import yaml

from workloads.spec import PositiveInt, Spec


class Recipe(Spec):
    """One published measurement."""

    generation: str
    topology: str
    """Topology of its one slice."""
    sequences_per_chip: PositiveInt
    published_seconds: float
    """Published seconds of a step."""
    estimated_seconds: float | None
    """Estimate for the published program at the quoted kernel efficiency. `None` if it does not compile any more."""

    @property
    def ratio(self) -> float | None:
        """Estimate divided by measurement."""
        return None if self.estimated_seconds is None else self.estimated_seconds / self.published_seconds


class Calibration(Spec):
    """Recipes of one model and their source."""

    model: str
    sequence_length: PositiveInt
    source: str
    program: str
    """Program that was measured and compiled, which is not this project's."""
    recipes: tuple[Recipe, ...]


def load_calibration() -> Calibration:
    """Load `calibration.yaml`."""
    return Calibration.model_validate(yaml.safe_load((files("workloads") / "calibration.yaml").read_text()))

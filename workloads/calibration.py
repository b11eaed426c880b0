"""How far the preflight's estimates are from published measurements.

Owns `calibration.yaml`, which stands beside every estimate that is shown. Measures nothing.
"""

from importlib.resources import files

import yaml

from workloads.spec import PositiveInt, Spec


class Recipe(Spec):
    """One published measurement."""

    generation: str
    topology: str
    """Of its one slice."""
    sequences_per_chip: PositiveInt
    published_seconds: float
    """Of a step."""
    estimated_seconds: float | None
    """Of the published program at the kernel efficiency that is quoted; None: nobody has compiled it."""

    @property
    def ratio(self) -> float | None:
        """Estimate over measurement."""
        return None if self.estimated_seconds is None else self.estimated_seconds / self.published_seconds


class Calibration(Spec):
    """Recipes of one model, and where they are from."""

    model: str
    sequence_length: PositiveInt
    source: str
    program: str
    """That was measured and compiled: not this project's."""
    recipes: tuple[Recipe, ...]


def load_calibration() -> Calibration:
    """What is known."""
    return Calibration.model_validate(yaml.safe_load((files("workloads") / "calibration.yaml").read_text()))

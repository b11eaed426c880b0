"""The settings in docs/how-to/models.md are accepted, and its numbers are those of the presets."""

import re

import pytest

from tests.documents.pages import DOCS
from workloads.spec import load_preset, preset_names
from workloads.spec.model import total_parameters
from workloads.training.flops import flops_per_token

TEXT = (DOCS / "how-to" / "models.md").read_text()
UNITS = {"thousand": 1e3, "million": 1e6, "billion": 1e9}


def test_its_table_has_every_preset_and_its_numbers() -> None:
    rows = re.findall(r"\| `([\w.-]+)` \| ([\d.]+) (\w+)[^|]* \| ([\d.]+) (\w+) \|", TEXT)
    assert {name for name, *_ in rows} == set(preset_names())
    for name, weights, unit, flops, flops_unit in rows:
        preset = load_preset(name)
        counted = flops_per_token(preset.model, preset.training.sequence_length)
        assert float(weights) * UNITS[unit] == pytest.approx(total_parameters(preset.model), rel=5e-3)
        assert float(flops) * UNITS[flops_unit] == pytest.approx(counted, rel=2e-2)

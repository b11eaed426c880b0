from pathlib import Path

import pytest

from infra.stack.tpu import resolve
from workloads.preflight_result import load_calibration
from workloads.spec import load_preset
from workloads.training.flops import flops_per_token

ROOT = Path(__file__).parents[2]
PUBLISHED_RATES = {"2x4": 7139, "4x4": 7243, "4x8": 7032, "8x8": 7247, "8x16": 7120, "16x16": 7207}
"""Tokens per second and chip, which the same source has in addition to the seconds."""


def test_seconds_and_batch_of_each_recipe_agree_with_its_published_rate() -> None:
    known = load_calibration()

    for recipe in known.recipes:
        rate = recipe.sequences_per_chip * known.sequence_length / recipe.published_seconds
        assert rate == pytest.approx(PUBLISHED_RATES[recipe.topology], rel=1e-3)


def test_every_recipe_is_of_slices_that_there_are_and_no_faster_than_their_peak() -> None:
    known, model = load_calibration(), load_preset("llama-3.1-8b").model

    for recipe in known.recipes:
        shape = resolve(recipe.generation, recipe.topology)
        tokens = recipe.sequences_per_chip * known.sequence_length
        peak_seconds = flops_per_token(model, known.sequence_length) * tokens / shape.peak_bf16_tflops_per_chip / 1e12
        assert 0.3 < peak_seconds / recipe.published_seconds < 0.5


def test_the_document_quotes_the_ratios() -> None:
    quoted = (ROOT / "docs" / "how-to" / "preflight.md").read_text()
    *most, last = [f"{recipe.ratio:.2f}" for recipe in load_calibration().recipes if recipe.ratio]

    assert f"{', '.join(most)} and {last}" in quoted

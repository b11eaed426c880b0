import json
import os
from pathlib import Path

import pytest

from workloads.spec import load_preset, preset_names
from workloads.training.flops import flops_per_token, total_parameters

GOLDEN = Path(__file__).parents[2] / "golden" / "presets"

PUBLISHED_BILLIONS = {
    "llama-3.2-1b": 1.236,
    "llama-3.1-8b": 8.030,
    "llama-3.1-70b": 70.554,
    "mixtral-8x7b": 46.703,
    "qwen3-0.6b": 0.5960,
    "qwen3-8b": 8.1907,
    "gemma-2-9b": 9.2417,
    "gemma-3-1b": 0.99989,
}


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_is_what_its_golden_file_says(name: str) -> None:
    preset = load_preset(name)
    resolved = {
        **preset.model_dump(mode="json"),
        "total_parameters": total_parameters(preset.model),
        "flops_per_token": flops_per_token(preset.model, preset.training.sequence_length),
    }
    golden = GOLDEN / f"{name}.json"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        golden.write_text(json.dumps(resolved, indent=2) + "\n")
    assert json.loads(golden.read_text()) == resolved


@pytest.mark.parametrize(("name", "billions"), PUBLISHED_BILLIONS.items())
def test_a_published_model_has_as_many_weights_as_published(name: str, billions: float) -> None:
    assert total_parameters(load_preset(name).model) == pytest.approx(billions * 1e9, rel=5e-4)


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'tinny' is not a preset; choose one of gemma-2-9b, .*, tiny"):
        load_preset("tinny")

from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import ModelSpec, WindowSpec

MODEL = small_job(Path("somewhere")).model.model_dump()

STRETCHED = {"factor": 8, "low_frequency_factor": 1, "high_frequency_factor": 4, "original_length": 8192}


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"query_heads": 5}, r"query_heads must be a multiple of kv_heads \(2\), got 5"),
        ({"head_dim": 7}, "head_dim must be even for RoPE, got 7"),
        ({"experts": {"count": 2, "per_token": 3, "balance_weight": 0}}, r"at most experts.count \(2\), got 3"),
        (
            {"rope_scaling": STRETCHED | {"high_frequency_factor": 1}},
            r"must be above low_frequency_factor \(1.0\), got 1.0",
        ),
    ],
)
def test_what_no_model_can_be_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        ModelSpec.model_validate(MODEL | changes)


def test_a_model_without_a_part_is_written_as_before_there_were_any() -> None:
    dimensions = {"vocab_size", "embed_dim", "mlp_dim", "layers", "query_heads", "kv_heads", "head_dim"}
    others = {"rope_base", "rope_scaling", "norm_epsilon", "tied_embedding", "experts"}
    assert MODEL.keys() == dimensions | others


def test_a_model_with_parts_survives_being_written() -> None:
    windows = WindowSpec(size=8, pattern=("local", "global"))
    parts = {"activation": "gelu", "score_dim": 9, "windows": windows, "norm_scales_from_one": True}
    model = ModelSpec.model_validate(MODEL | parts)
    assert ModelSpec.model_validate_json(model.model_dump_json()) == model
    assert parts.items() <= dict(model).items()

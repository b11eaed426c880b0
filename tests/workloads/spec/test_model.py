from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import ExpertsSpec, ModelSpec

MODEL = small_job(Path("somewhere")).model.model_dump()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"query_heads": 5}, r"query_heads must be a multiple of kv_heads \(2\), got 5"),
        ({"head_dim": 7}, "head_dim must be even for RoPE, got 7"),
        ({"experts": {"count": 2, "per_token": 3, "balance_weight": 0}}, r"at most experts.count \(2\), got 3"),
    ],
)
def test_what_no_model_can_be_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        ModelSpec.model_validate(MODEL | changes)


def test_a_token_may_go_to_all_experts() -> None:
    assert ExpertsSpec(count=2, per_token=2, balance_weight=0).per_token == 2

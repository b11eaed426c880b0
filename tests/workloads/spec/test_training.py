from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import OptimizerSpec, TrainingSpec

TRAINING = small_job(Path("somewhere")).training.model_dump()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"profile_steps": [5, 3]}, r"first and last step, in order .*, got \[5, 3\]"),
        ({"profile_steps": [7, 9]}, r"in order and at most 8, got \[7, 9\]"),
        ({"keep_every_steps": 6}, r"a multiple of save_every_steps \(4\), got 6"),
        ({"remat": "some"}, "'none', 'dots', 'attention', 'full' or 'offload'"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TrainingSpec.model_validate(TRAINING | changes)


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_all_that_is_wrong_with_an_optimizer_is_said_at_once(kind: str) -> None:
    optimizer = small_job(Path("somewhere")).optimizer.model_dump()
    with pytest.raises(ValidationError) as raised:
        OptimizerSpec.model_validate(optimizer | {"kind": kind, "momentum": 0.9, "skip_norm": 0.5, "clip_norm": 1.0})
    assert "skip_norm must be at least clip_norm (1.0), got 0.5" in str(raised.value)
    assert ("momentum needs kind muon" in str(raised.value)) == (kind == "adamw")

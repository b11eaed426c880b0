from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import TrainingSpec

TRAINING = small_job(Path("somewhere")).training.model_dump()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"profile_steps": [5, 3]}, r"first and last step, in order .*, got \[5, 3\]"),
        ({"profile_steps": [7, 9]}, r"of the 8 steps there are, got \[7, 9\]"),
        ({"keep_every_steps": 6}, r"a multiple of save_every_steps \(4\), got 6"),
        ({"remat": "some"}, "'none', 'dots', 'attention', 'full' or 'offload'"),
    ],
)
def test_what_contradicts_itself_is_refused(changes: dict[str, object], fault: str) -> None:
    with pytest.raises(ValidationError, match=fault):
        TrainingSpec.model_validate(TRAINING | changes)

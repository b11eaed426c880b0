"""Job specifications with anything in them: one that holds, or what does not."""

import json
from pathlib import Path

from hypothesis import given, settings

from infra.stack.settings.read import parse
from tests.fuzz.damage import damaged, damaged_bytes
from tests.infra.one_job import only_spec
from tests.infra.recording import stack_values
from tests.workloads.jobs import small_job
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, JobSpec
from workloads.training.__main__ import submission
from workloads.training.failures import InvalidSpec

SMALL = small_job(Path("/job"))
LARGE = only_spec(parse(stack_values("prod")))


def _read_or_refused(text: str) -> None:
    try:
        spec, _ = submission({JOB_SPEC_VARIABLE: text, RUN_ID_VARIABLE: "run", START_VARIABLE: "0"}, 0.0)
    except InvalidSpec as fault:
        told = str(fault)
    else:
        assert JobSpec.model_validate_json(spec.model_dump_json()) == spec
        return
    assert told.startswith("the job specification is not valid: ")


@settings(deadline=None)
@given(damaged_bytes(SMALL.model_dump_json(indent=1)))
def test_a_damaged_specification_is_read_or_refused_with_its_exit_code(text: bytes) -> None:
    _read_or_refused(text.decode(errors="surrogateescape"))


@settings(deadline=None)
@given(damaged(LARGE.model_dump))
def test_a_specification_with_wrong_values_is_read_or_refused_with_its_exit_code(values: object) -> None:
    _read_or_refused(json.dumps(values, default=str, skipkeys=True))

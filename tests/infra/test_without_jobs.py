"""A stack without jobs: a cluster with queues to which others submit."""

import pytest

from infra.stack.names import PUBLISHED_KEY
from infra.stack.published import Published
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.infra.recording import Values, run_program, stack_values
from tests.policy.test_stacks import broken, policy_of


@pytest.fixture
def without_jobs(values: Values) -> Values:
    del values["job"], values["image"]
    return values | {"jobs": {}}


def test_a_lost_section_is_no_stack_without_jobs(without_jobs: Values) -> None:
    del without_jobs["jobs"]
    with pytest.raises(SettingsError, match=r"jobs: expected the stack's jobs, got nothing; .* jobs: \{\} for a stack"):
        parse(without_jobs)


def test_its_outputs_name_no_job(without_jobs: Values) -> None:
    exports = run_program(without_jobs).exports
    assert (exports["jobs"], "job" in exports, list(exports["bill"]["jobs"])) == ([], False, [])
    assert exports["bill"]["at_once"]["usd_per_hour"] > 0


def test_with_an_image_functions_run_in_it(without_jobs: Values) -> None:
    image = stack_values("prod")["image"]
    (record,) = run_program(without_jobs | {"image": image}).starting("kubernetes:core/v1:ConfigMap", "published-")
    assert Published.model_validate_json(record.inputs["data"][PUBLISHED_KEY]).image == image["reference"]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_it_keeps_the_rules(without_jobs: Values, preview: bool) -> None:
    assert broken(without_jobs, policy_of("dev"), preview=preview) == []

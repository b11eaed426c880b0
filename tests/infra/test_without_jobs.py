"""A stack without jobs: a cluster with queues to which others submit."""

import pytest

from infra.stack.names import PUBLISHED_KEY
from infra.stack.published import Published
from infra.stack.settings.errors import SettingsError
from infra.stack.settings.read import parse
from tests.infra.recording import Recording, Values, run_program, stack_values
from tests.policy.test_stacks import broken, policy_of


@pytest.fixture
def without_jobs(values: Values) -> Values:
    del values["job"], values["image"]
    return values | {"jobs": {}}


def _names(recording: Recording) -> set[tuple[str, str]]:
    return {(found.type.rpartition(":")[2], found.name) for found in recording.registrations}


def test_it_needs_neither_a_job_nor_an_image(without_jobs: Values) -> None:
    settings = parse(without_jobs)
    assert (settings.jobs, settings.image) == ({}, None)


def test_a_lost_section_is_no_stack_without_jobs(without_jobs: Values) -> None:
    del without_jobs["jobs"]
    with pytest.raises(SettingsError, match=r"jobs: expected the stack's jobs, got nothing; .* jobs: \{\} for a stack"):
        parse(without_jobs)


def test_its_resources_are_those_of_the_stack_with_a_job_but_for_the_jobs_own(without_jobs: Values) -> None:
    found = run_program(without_jobs)
    assert _names(run_program(stack_values("dev"))) - _names(found) == {
        ("Job", "tiny"),
        ("Image", "trainer"),
        ("JobSet", "job-tiny"),
        ("ConfigMap", "price-tiny"),
        ("LocalQueue", "queue-research.tiny"),
        ("ManagedFolder", "access-tiny"),
        ("ManagedFolderIamMember", "access-research_tiny"),
    }
    assert (found.exports["jobs"], "job" in found.exports) == ([], False)
    assert not found.exports["bill"]["jobs"]
    assert found.exports["bill"]["at_once"]["usd_per_hour"] > 0


def test_with_an_image_functions_run_in_it(without_jobs: Values) -> None:
    image = stack_values("prod")["image"]
    (record,) = run_program(without_jobs | {"image": image}).starting("kubernetes:core/v1:ConfigMap", "published-")
    assert Published.model_validate_json(record.inputs["data"][PUBLISHED_KEY]).image == image["reference"]


@pytest.mark.parametrize("preview", [True, False], ids=["preview", "up"])
def test_it_keeps_the_rules(without_jobs: Values, preview: bool) -> None:
    assert broken(without_jobs, policy_of("dev"), preview=preview) == []

"""Jobs with containers: their settings, rights and volumes."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.test_jobs import CONTAINER
from tests.policy.test_stacks import broken, policy_of

NAMESPACE = ("kubernetes:core/v1:Namespace", "namespace-research")


def with_container(values: Values, **changes: object) -> Values:
    """A stack with one job, a container on two slices."""
    slices = {"group": "trillium", "count": 2}
    rest = {name: value for name, value in values.items() if name not in ("job", "image")}
    return rest | {"jobs": {"serve": CONTAINER | {"team": "research", "slices": slices} | changes}}


def rendered(values: Values, **changes: object) -> Any:
    settings = parse(with_container(values, **changes))
    return render(submission(settings, settings.jobs["serve"], None))


def test_it_is_that_of_the_golden_file(values: Values, accepted_golden: Any) -> None:
    golden = ROOT / "tests" / "golden" / "jobs" / "container.yaml"
    accepted_golden(golden, yaml.safe_dump(rendered(values), width=120))


def test_in_a_team_on_the_hosts_network_every_pod_is_the_trainers_user(values: Values) -> None:
    stack = with_container(values, run_as_user=1000, privileged=True)
    stack["jobs"]["other"] = stack["jobs"]["serve"] | {"host_network": True, "run_as_user": None, "privileged": False}
    errors = errors_of(stack)
    assert "jobs.serve.run_as_user" in errors
    assert "a team with a job on the host's network (jobs.other)" in errors["jobs.serve.privileged"]
    assert "jobs.other" in errors_of(stack | {"functions": {"run_as_user": 0}})["functions.run_as_user"]


def _of_the_trainer(values: Values, **changes: object) -> Values:
    return values | {"job": values["job"] | changes}


def _of_functions(values: Values, **changes: object) -> Values:
    return values | {"functions": changes}


@pytest.mark.parametrize(
    ("with_rights", "changes", "level", "rule"),
    [
        (with_container, {"run_as_user": 1000}, "restricted", None),
        (with_container, {"privileged": True}, "privileged", "no-privileges"),
        (_of_the_trainer, {"run_as_user": 0}, "baseline", "no-root"),
        (_of_functions, {"run_as_user": 0}, "baseline", "no-root"),
        (_of_functions, {"privileged": True}, "privileged", "no-privileges"),
    ],
    ids=["other user", "privileged", "root in the trainer", "root in functions", "privileged functions"],
)
def test_rights_open_the_namespace_no_further_than_they_need_and_break_the_rules_about_them(
    values: Values, with_rights: Callable[..., Values], changes: Values, level: str, rule: str | None
) -> None:
    stack = with_rights(values, **changes)
    labels = run_program(stack).named(*NAMESPACE).inputs["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == level
    # The JobSet of a call is not part of the plan.
    of_job = set[str]() if with_rights is _of_functions else {rule}
    assert {found for found, _ in broken(stack, policy_of("dev"), preview=False)} == (
        {"pod-security"} | of_job if rule else set[str]()
    )

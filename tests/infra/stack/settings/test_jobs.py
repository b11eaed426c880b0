"""Jobs of any kind in a stack file."""

from collections.abc import Sequence
from copy import deepcopy
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from infra.stack.settings.jobs import group_order
from infra.stack.settings.read import parse
from tests.infra.one_job import unnamed
from tests.infra.recording import ROOT, Recording, Values, run_program, values_of
from tests.infra.spoiling import errors_of

DIGEST = f"sha256:{'3' * 64}"
CONTAINER = {
    "kind": "container",
    "team": "product",
    "slices": {"group": "ironwood", "count": 2},
    "priority": "low",
    "max_restarts": 1,
    "max_hours": 10,
    "image": f"europe-docker.pkg.dev/my-project/tools/sweep@{DIGEST}",
    "command": ["python", "-m", "sweep"],
    "args": ["--host", "$(TPU_WORKER_ID)"],
    "env": {"LEVEL": "info"},
    "ports": {"http": 8000},
}
JOB_SET = "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"


def several_jobs() -> Values:
    """Two training jobs of one team and a container of another."""
    values = values_of(ROOT / "tests" / "infra" / "two-teams.yaml")
    job = values.pop("job")
    name = job.pop("name")
    small = job | {"slices": {"group": "trillium", "count": 1}, "mesh": {"replica": 2, "fsdp": 8}, "max_hours": 5}
    values["jobs"] = {name: job, "small": small, "serve": deepcopy(CONTAINER)}
    values["budget"] = {"usd_per_hour": 300, "usd_total": 10_000}
    return values


@pytest.fixture
def several() -> Values:
    return several_jobs()


@pytest.fixture
def recorded(several: Values) -> Recording:
    return run_program(several)


def test_the_short_form_is_the_same_job_as_the_long_one(two_teams: Values) -> None:
    job = dict(two_teams["job"])
    long = {**two_teams, "jobs": {job.pop("name"): job}}
    del long["job"]
    assert parse(long) == parse(two_teams)


def test_jobs_of_a_team_agree_on_the_order_of_its_slice_groups(values: Values) -> None:
    group = values["slices"]["trillium"]
    values["slices"] = {"a": group, "b": group, "c": group}
    values["teams"]["research"]["quota"] = {"a": 16, "b": 16, "c": 16}
    job = unnamed(values)

    def wanting(group: str, fallback: str) -> Values:
        return job | {"slices": {"group": group, "fallback": [fallback], "count": 2}}

    values["jobs"] = {"one": wanting("c", "b"), "two": wanting("b", "a")}
    assert list(parse(values).teams["research"].quota) == ["c", "b", "a"]
    values["jobs"]["whim"] = wanting("a", "c")
    assert "fits the other jobs of team research" in errors_of(values)["jobs.whim.slices.fallback"]


@hypothesis_settings(deadline=None)
@given(st.permutations("abcde"), st.data())
def test_one_order_of_groups_keeps_every_preference_that_goes_with_the_others(
    order: Sequence[str], data: st.DataObject
):
    chosen = st.sets(st.sampled_from(order), min_size=1).map(lambda some: tuple(sorted(some, key=order.index)))
    preferences = data.draw(st.lists(chosen))
    found = group_order(preferences)
    assert sorted(found) == sorted({group for preference in preferences for group in preference})
    for preference in preferences:
        assert all(found.index(better) < found.index(worse) for better, worse in pairwise(preference))


def test_the_only_job_is_found_in_the_state_under_its_former_name(two_teams: Values, recorded: Recording) -> None:
    def former(recording: Recording) -> list[str]:
        aliases = [alias.spec.name for found in recording.of_type(JOB_SET) for alias in found.request.aliases]
        return [name for name in aliases if name]

    assert former(run_program(two_teams)) == ["training"]
    assert former(recorded) == []


def test_outputs_name_every_job_and_describe_the_first_that_trains(recorded: Recording) -> None:
    kinds = {job["name"]: (job["namespace"], job["queue"], job["kind"]) for job in recorded.exports["jobs"]}
    assert kinds == {
        "ablation": ("research", "research", "training"),
        "small": ("research", "research", "training"),
        "serve": ("product-ml", "product", "container"),
    }
    assert recorded.exports["job"] == {"name": "ablation", "namespace": "research", "queue": "research"}
    assert recorded.exports["job_spec"]["name"] == "ablation"


def test_a_stack_of_containers_needs_no_image_of_the_trainer(several: Values) -> None:
    several["jobs"] = {"serve": several["jobs"]["serve"]}
    del several["image"]
    recording = run_program(several)
    assert recording.exports["job"]["name"] == "serve"
    assert "job_spec" not in recording.exports
    several["jobs"]["train"] = {"preset": "tiny"}
    assert "add image to the stack file" in errors_of(several)["image"]

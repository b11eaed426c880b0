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
from tests.infra.recording import Recording, Values, run_program
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


@pytest.fixture
def several(two_teams: Values) -> Values:
    """Two training jobs of one team and a container of another."""
    values = deepcopy(two_teams)
    job = values.pop("job")
    name = job.pop("name")
    small = job | {"slices": {"group": "trillium", "count": 1}, "mesh": {"replica": 2, "fsdp": 8}, "max_hours": 5}
    values["jobs"] = {name: job, "small": small, "serve": deepcopy(CONTAINER)}
    values["budget"] = {"usd_per_hour": 300, "usd_total": 10_000}
    return values


@pytest.fixture
def recorded(several: Values) -> Recording:
    return run_program(several)


def _on(group: str, count: int) -> Values:
    return {"jobs": {"a": CONTAINER | {"slices": {"group": group, "count": count}, "team": "research"}}}


def test_the_short_form_is_the_same_job_as_the_long_one(two_teams: Values) -> None:
    job = dict(two_teams["job"])
    long = {**two_teams, "jobs": {job.pop("name"): job}}
    del long["job"]
    assert parse(long) == parse(two_teams)


@pytest.mark.parametrize(
    ("change", "path", "words"),
    [
        ({"job": {"name": "other"}}, "job", "either jobs or, for one training job, job, got both"),
        ({"jobs": []}, "jobs", "a mapping by name, got []; write jobs by name, or {} for a stack without jobs"),
        ({"jobs": {"Big": CONTAINER}}, "jobs.Big", "at most 26 lower-case letters, digits and hyphens"),
        ({"jobs": {"a": CONTAINER | {"name": "a"}}}, "jobs.a.name", "no name, since a is the job's name, got 'a'"),
        ({"jobs": {"a": CONTAINER | {"kind": "batch"}}}, "jobs.a.kind", "one of the kinds training, container, got"),
        ({"jobs": {"a": CONTAINER | {"team": "sales"}}}, "jobs.a.team", "one of the teams product, research"),
        ({"jobs": {"a": CONTAINER | {"image": "sweep:1"}}}, "jobs.a.image", "an image by digest"),
        ({"jobs": {"a": CONTAINER | {"env": {"2a": ""}}}}, "jobs.a.env.2a", "letters, digits and underscores"),
        ({"jobs": {"a": CONTAINER | {"env": {"TPU_NAME": ""}}}}, "jobs.a.env.TPU_NAME", "neither GKE nor the job"),
        ({"jobs": {"a": CONTAINER | {"ports": {"web_1": 80}}}}, "jobs.a.ports.web_1", "15 lower-case letters"),
        ({"jobs": {"a": CONTAINER | {"ports": {"web": 8431}}}}, "jobs.a.ports.web", "where libtpu answers GKE"),
        ({"jobs": {"a": CONTAINER | {"secrets": ["TOKEN"]}}}, "jobs.a.secrets", "got TOKEN; rename it or add"),
        (_on("ironwood", 3), "jobs.a.slices.count", "at most the 2 slices of ironwood, got 3"),
        (_on("single", 1), "teams.research.quota.single", "at least the 4 chips of job a, got nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_error_has_the_path_of_the_job(several: Values, change: Values, path: str, words: str) -> None:
    assert words in errors_of(several | change)[path]


def test_the_short_form_is_of_a_training_job_alone(two_teams: Values) -> None:
    values = two_teams | {"job": {**CONTAINER, "name": "serve"}}
    assert "a training job, the only kind that job may have, got 'container'" in errors_of(values)["job.kind"]


def test_the_budget_of_all_jobs_is_one(several: Values) -> None:
    several["budget"]["usd_total"] = 9000
    # 32 chips of 2.70 USD for 100 hours, 16 for 5, and 16 of 4.50 for 10.
    costs = "$9,000.00 together, got $9,576.00 (ablation $8,640.00, serve $720.00, small $216.00)"
    assert costs in errors_of(several)["budget.usd_total"]
    del several["jobs"]["serve"]["max_hours"]
    several["budget"]["usd_total"] = 8640 + 216 + 360
    advice = "write jobs.serve.max_hours: 5, which costs $360.00 at $72.00 an hour"
    assert advice in errors_of(several)["budget.usd_total"]


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

"""Jobs with containers: their settings, rights and volumes."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from tests.infra.one_job import only_job, template_of
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.test_jobs import CONTAINER
from tests.policy.test_stacks import broken, policy_of

NAMESPACE = ("kubernetes:core/v1:Namespace", "namespace-research")
PATHWAYS_JOB = {
    "backend": "pathways",
    "pathways": {name: f"servers@sha256:{'4' * 64}" for name in ("server_image", "proxy_image")},
}


def with_container(values: Values, **changes: object) -> Values:
    """A stack with one job, a container on two slices."""
    slices = {"group": "trillium", "count": 2}
    rest = {name: value for name, value in values.items() if name not in ("job", "image")}
    return rest | {"jobs": {"serve": CONTAINER | {"team": "research", "slices": slices} | changes}}


def rendered(values: Values, **changes: object) -> Any:
    settings = parse(with_container(values, **changes))
    return render(submission(settings, settings.jobs["serve"], None))


def _pod_and_container(values: Values, **changes: object) -> tuple[Any, Any]:
    pod = template_of(rendered(values, **changes))["spec"]
    (container,) = pod["containers"]
    return pod, container


def test_it_is_that_of_the_golden_file(values: Values, accepted_golden: Any) -> None:
    golden = ROOT / "tests" / "golden" / "jobs" / "container.yaml"
    accepted_golden(golden, yaml.safe_dump(rendered(values), width=120))


def test_what_it_sets_itself_wins(values: Values) -> None:
    env = {"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "gs://ours/compiled"}
    _, container = _pod_and_container(values, env=env)
    declared = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert env.items() <= declared.items()


def test_the_image_brings_its_entry_point_where_there_is_no_command(values: Values) -> None:
    _, container = _pod_and_container(values, command=[], args=[])
    assert not {"command", "args"} & container.keys()


@pytest.mark.parametrize("user", [1000, 0])
def test_an_image_of_another_user_runs_as_that_one_and_stays_confined(values: Values, user: int) -> None:
    pod, container = _pod_and_container(values, run_as_user=user)
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (user, user, user != 0)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_privileged_container_is_one_that_the_api_server_takes(values: Values) -> None:
    _, container = _pod_and_container(values, privileged=True)
    context = container["securityContext"]
    assert (context["privileged"], context["readOnlyRootFilesystem"]) == (True, True)
    assert "allowPrivilegeEscalation" not in context


def test_what_a_pod_requests_of_its_host_is_what_the_stack_file_says(values: Values) -> None:
    _, container = _pod_and_container(values, resources={"vcpus": 8})
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "540Gi", "google.com/tpu": "4"}


def test_a_volume_is_an_empty_folder_of_that_size_and_the_rest_stays_read_only(values: Values) -> None:
    cache, ram = {"path": "/opt/cache", "size_gib": 20}, {"path": "/ram", "size_gib": 4, "medium": "memory"}
    pod, container = _pod_and_container(values, volumes={"cache": cache, "ram": ram})
    assert pod["volumes"][-2:] == [
        {"name": "own-cache", "emptyDir": {"sizeLimit": "20Gi"}},
        {"name": "own-ram", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
    ]
    assert container["volumeMounts"][-2:] == [
        {"name": "own-cache", "mountPath": "/opt/cache"},
        {"name": "own-ram", "mountPath": "/ram"},
    ]
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


def _volume(path: str, size_gib: int = 1) -> Values:
    return {"path": path, "size_gib": size_gib}


def _in_memory(size_gib: int) -> Values:
    return _volume("/a", size_gib) | {"medium": "memory"}


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"volumes": {"a": _volume("cache")}}, "volumes.a.path", "the absolute path of a folder"),
        ({"volumes": {"a": _volume("/a/../tmp")}}, "volumes.a.path", "without . and .."),
        ({"volumes": {"a": _volume("/tmp")}}, "volumes.a.path", "a folder other than /tmp"),
        ({"volumes": {"a": _volume("/proc/1")}}, "volumes.a.path", "outside /datasets"),
        ({"volumes": {"a": _volume("/a"), "b": _volume("/a")}}, "volumes.b.path", "a folder that a does not use"),
        ({"volumes": {"a": _volume("/a", 51)}}, "volumes", "at most 50 GiB on disk together"),
        ({"volumes": {"a": _in_memory(600)}}, "volumes", "at most 540 GiB in memory together"),
        ({"volumes": {"a": _in_memory(218)}} | PATHWAYS_JOB, "volumes", "at most 217 GiB in memory together"),
        ({"resources": {"vcpus": 170}}, "resources.vcpus", "at most 153 of a ct6e-standard-4t"),
        ({"resources": {"memory_gib": 700}}, "resources.memory_gib", "at most 612 of a ct6e-standard-4t"),
        ({"resources": {"vcpus": 8}} | PATHWAYS_JOB, "resources.vcpus", "write jobs.serve.pathways.head_vcpus"),
        ({"run_as_user": -1}, "run_as_user", "greater than or equal to 0"),
        ({"run_as_user": False}, "run_as_user", "a whole number, got false"),
        ({"env": {"N": 3}}, "env.N", "put it in quotation marks: '3'"),
        ({"command": "python x"}, "command", "write it as a list: [python, x]"),
        ({"heartbeat": {"file": "alive", "silence_seconds": 60}}, "heartbeat.file", "path of a file"),
        ({"slice_failure": "continue"}, "slice_failure", "programs that need not stop together are a job each"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_value_is_reported_with_the_possible_ones(
    values: Values, changes: Values, path: str, words: str
) -> None:
    assert words in errors_of(with_container(values, **changes))[f"jobs.serve.{path}"]


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


@pytest.mark.parametrize("with_rights", [with_container, _of_the_trainer, _of_functions])
@pytest.mark.parametrize(
    ("changes", "level", "rule"),
    [
        ({"run_as_user": 1000}, "restricted", None),
        ({"run_as_user": 0}, "baseline", "no-root"),
        ({"privileged": True}, "privileged", "no-privileges"),
    ],
    ids=["other user", "root", "privileged"],
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


def test_a_trainer_of_another_user_runs_as_that_one_and_may_be_privileged(values: Values) -> None:
    settings = parse(_of_the_trainer(values, run_as_user=1000, privileged=True))
    pod = template_of(render(submission(settings, only_job(settings), "trainer@sha256:0")))["spec"]
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsGroup"]) == (1000, 1000)
    assert pod["containers"][0]["securityContext"]["privileged"] is True


def test_with_its_exceptions_a_stack_may_have_a_privileged_job(values: Values) -> None:
    granted = {
        rule: {"exceptions": [{"resource": name, "reason": "An old image.", "expires_on": "2027-06-30"}]}
        for rule, name in (("no-privileges", "job-serve"), ("pod-security", "namespace-research"))
    }
    assert broken(with_container(values, privileged=True), policy_of("dev") | granted, preview=False) == []

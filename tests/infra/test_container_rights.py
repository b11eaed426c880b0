"""What a container job may ask of its host, and what that opens."""

from typing import Any

import pytest

from infra.jobset import render
from infra.settings.read import parse
from infra.submission import submission
from tests.infra.recording import Values, run_program
from tests.infra.test_containers import pod_of, with_container
from tests.infra.test_jobs import told
from tests.policy.test_stacks import broken, policy_of

NAMESPACE = ("kubernetes:core/v1:Namespace", "namespace-research")
PATHWAYS_JOB = {
    "backend": "pathways",
    "pathways": {name: f"servers@sha256:{'4' * 64}" for name in ("server_image", "proxy_image")},
}


def _pod(values: Values, **changes: object) -> Any:
    settings = parse(with_container(values, **changes))
    return pod_of(render(submission(settings, settings.jobs["serve"], None)))


def _level(values: Values, **changes: object) -> str:
    namespace = run_program(with_container(values, **changes)).named(*NAMESPACE)
    return namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]


def test_an_image_of_another_user_runs_as_that_one_and_stays_confined(values: Values) -> None:
    pod = _pod(values, run_as_user=1000)
    context = pod["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (1000, 1000, True)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False


def test_root_keeps_no_capability(values: Values) -> None:
    pod = _pod(values, run_as_user=0)
    assert (pod["securityContext"]["runAsUser"], pod["securityContext"]["runAsNonRoot"]) == (0, False)
    assert pod["containers"][0]["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_a_privileged_container_is_one_that_the_api_server_takes(values: Values) -> None:
    (container,) = _pod(values, privileged=True)["containers"]
    context = container["securityContext"]
    assert context["privileged"] is True
    assert "allowPrivilegeEscalation" not in context
    assert context["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize(
    ("changes", "level", "rules"),
    [
        ({"run_as_user": 1000}, "restricted", set[str]()),
        ({"run_as_user": 0}, "baseline", {"no-root", "pod-security"}),
        ({"privileged": True}, "privileged", {"no-privileges", "pod-security"}),
    ],
    ids=["other user", "root", "privileged"],
)
def test_rights_open_the_namespace_of_the_team_no_further_than_they_need_and_break_the_rules_about_them(
    values: Values, changes: Values, level: str, rules: set[str]
) -> None:
    assert _level(values, **changes) == level
    found = broken(with_container(values, **changes), policy_of("dev"), preview=False)
    assert {rule for rule, _ in found} == rules


def test_what_a_pod_requests_of_its_host_is_what_the_stack_file_says(values: Values) -> None:
    (container,) = _pod(values, resources={"vcpus": 8})["containers"]
    assert container["resources"]["requests"] == {"cpu": "8", "memory": "540Gi", "google.com/tpu": "4"}


def test_a_volume_is_an_empty_folder_of_that_size_and_the_rest_stays_read_only(values: Values) -> None:
    volumes = {
        "cache": {"path": "/root/.cache", "size_gib": 20},
        "ram": {"path": "/ram", "size_gib": 4, "medium": "memory"},
    }
    pod = _pod(values, volumes=volumes)
    assert pod["volumes"][-2:] == [
        {"name": "own-cache", "emptyDir": {"sizeLimit": "20Gi"}},
        {"name": "own-ram", "emptyDir": {"medium": "Memory", "sizeLimit": "4Gi"}},
    ]
    (container,) = pod["containers"]
    assert container["volumeMounts"][-2:] == [
        {"name": "own-cache", "mountPath": "/root/.cache"},
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
        ({"volumes": {"a": _volume("/a"), "b": _volume("/a")}}, "volumes.b.path", "a folder that a does not have"),
        ({"volumes": {"a": _volume("/a", 51)}}, "volumes", "at most 50 GiB on disk together"),
        ({"volumes": {"a": _in_memory(600)}}, "volumes", "at most 540 GiB in memory together"),
        ({"volumes": {"a": _in_memory(218)}} | PATHWAYS_JOB, "volumes", "at most 217 GiB in memory together"),
        ({"resources": {"vcpus": 170}}, "resources.vcpus", "at most 153 of a ct6e-standard-4t"),
        ({"resources": {"memory_gib": 700}}, "resources.memory_gib", "at most 612 of a ct6e-standard-4t"),
        ({"resources": {"vcpus": 8}} | PATHWAYS_JOB, "resources.vcpus", "write jobs.serve.pathways.head_vcpus"),
        ({"run_as_user": -1}, "run_as_user", "greater than or equal to 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_is_told_with_what_can(values: Values, changes: Values, path: str, words: str) -> None:
    assert words in told(with_container(values, **changes))[f"jobs.serve.{path}"]


def test_in_a_team_on_the_hosts_network_every_pod_is_the_trainers_user(values: Values) -> None:
    stack = with_container(values, run_as_user=1000, privileged=True)
    stack["jobs"]["other"] = stack["jobs"]["serve"] | {"host_network": True, "run_as_user": None, "privileged": False}
    found = told(stack)
    assert {"jobs.serve.run_as_user", "jobs.serve.privileged"} <= found.keys()
    assert "a team with a job on the host's network (jobs.other)" in found["jobs.serve.privileged"]


def test_with_its_exceptions_a_stack_may_have_a_privileged_job(values: Values) -> None:
    resources = {
        "no-privileges": "job-serve",
        "pod-security": "namespace-research",
    }
    granted = {
        rule: {"exceptions": [{"resource": name, "reason": "An old image.", "expires_on": "2027-06-30"}]}
        for rule, name in resources.items()
    }
    assert broken(with_container(values, privileged=True), policy_of("dev") | granted, preview=False) == []

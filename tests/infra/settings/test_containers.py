"""Jobs with containers: their settings, rights and volumes."""

from typing import Any

import pytest
import yaml

from infra.jobset import render
from infra.settings.read import parse
from infra.submission import submission
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.settings.test_jobs import CONTAINER, DIGEST, read_errors
from tests.policy.test_stacks import broken, policy_of

GOLDEN = ROOT / "tests" / "golden" / "jobs"


@pytest.fixture
def rendered(values: Values) -> Any:
    return _rendered(values)


def with_container(values: Values, **changes: object) -> Values:
    """A stack with one job, a container on two slices."""
    slices = {"group": "trillium", "count": 2}
    rest = {name: value for name, value in values.items() if name not in ("job", "image")}
    return rest | {"jobs": {"serve": CONTAINER | {"team": "research", "slices": slices} | changes}}


def pod_of(rendered: Any) -> Any:
    """The specification of its pods."""
    return _job(rendered)["template"]["spec"]


def _rendered(values: Values, **changes: object) -> Any:
    settings = parse(with_container(values, **changes))
    return render(submission(settings, settings.jobs["serve"], None))


def _container(rendered: Any) -> Any:
    (container,) = _job(rendered)["template"]["spec"]["containers"]
    return container


def _job(rendered: Any) -> Any:
    (slices,) = rendered["spec"]["replicatedJobs"]
    return slices["template"]["spec"]


def _variables(container: Any) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container["env"] if "value" in variable}


def test_it_is_that_of_the_golden_file(rendered: Any, accepted_golden: Any) -> None:
    accepted_golden(GOLDEN / "container.yaml", yaml.safe_dump(rendered, width=120))


def test_the_program_is_what_the_stack_file_says(rendered: Any) -> None:
    container = _container(rendered)
    assert container["image"].endswith(DIGEST)
    assert (container["command"], container["args"]) == (["python", "-m", "sweep"], ["--host", "$(TPU_WORKER_ID)"])
    assert {"name": "http", "containerPort": 8000} in container["ports"]
    assert _variables(container)["LEVEL"] == "info"


def test_it_gets_its_folder_and_the_variables_of_chips(rendered: Any) -> None:
    variables = _variables(_container(rendered))
    assert variables["JOB_FOLDER"] == "gs://my-project-multislice-dev-checkpoints/serve"
    assert (variables["PJRT_DEVICE"], variables["HOME"]) == ("TPU", "/tmp")


def test_what_it_sets_itself_wins(values: Values) -> None:
    env = {"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "gs://ours/compiled"}
    variables = _variables(_container(_rendered(values, env=env)))
    assert {name: variables[name] for name in env} == env


def test_the_image_brings_its_entry_point_where_there_is_no_command(values: Values) -> None:
    container = _container(_rendered(values, command=[], args=[]))
    assert not {"command", "args"} & container.keys()


def test_the_hosts_of_a_slice_are_found_by_what_gke_sets_and_nothing_of_it_is_declared(rendered: Any) -> None:
    job = _job(rendered)
    assert (job["completionMode"], job["parallelism"]) == ("Indexed", 2)
    assert not [name for name in _variables(_container(rendered)) if name.startswith(("TPU_WORKER_", "TPU_PROCESS_"))]


def test_slices_queue_and_chips_are_those_of_a_training_job(rendered: Any) -> None:
    assert rendered["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research.serve"
    topology = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert rendered["metadata"]["annotations"][topology] == "cloud.google.com/gke-nodepool"
    assert rendered["spec"]["replicatedJobs"][0]["replicas"] == 2
    assert _container(rendered)["resources"]["limits"] == {"google.com/tpu": "4"}


def test_exit_codes_mean_nothing_but_failure(rendered: Any) -> None:
    disrupted, other = _job(rendered)["podFailurePolicy"]["rules"]
    assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
    assert other["onExitCodes"] == {"containerName": "program", "operator": "NotIn", "values": [0]}
    (rule,) = rendered["spec"]["failurePolicy"]["rules"]
    assert rule["action"] == "RestartJobSetAndIgnoreMaxRestarts"


def test_it_may_not_ask_the_api_server(rendered: Any) -> None:
    pod = _job(rendered)["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert [volume["name"] for volume in pod["volumes"]] == ["shared-memory", "temporary"]


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
        ({"volumes": {"a": _volume("/a"), "b": _volume("/a")}}, "volumes.b.path", "a folder that a does not use"),
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
def test_an_impossible_value_is_reported_with_the_possible_ones(
    values: Values, changes: Values, path: str, words: str
) -> None:
    assert words in read_errors(with_container(values, **changes))[f"jobs.serve.{path}"]


def test_in_a_team_on_the_hosts_network_every_pod_is_the_trainers_user(values: Values) -> None:
    stack = with_container(values, run_as_user=1000, privileged=True)
    stack["jobs"]["other"] = stack["jobs"]["serve"] | {"host_network": True, "run_as_user": None, "privileged": False}
    found = read_errors(stack)
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

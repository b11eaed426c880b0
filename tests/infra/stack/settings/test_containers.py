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
from workloads.spec import METRICS_PORT

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


def test_it_is_that_of_the_golden_file(values: Values, accepted_golden: Any) -> None:
    golden = ROOT / "tests" / "golden" / "jobs" / "container.yaml"
    accepted_golden(golden, yaml.safe_dump(rendered(values), width=120))


_FILE = {"file": "/tmp/alive", "silence_seconds": 300}


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
        ({"env": {"N": 3}}, "env.N", "put it in quotation marks: '3'"),
        ({"command": "python x"}, "command", "write it as a list: [python, x]"),
        ({"heartbeat": {"file": "alive", "silence_seconds": 60}}, "heartbeat.file", "path of a file"),
        ({"heartbeat": {"silence_seconds": 60}}, "heartbeat", "either port or file"),
        ({"heartbeat": {**_FILE, "port": "http"}}, "heartbeat", "either port or file"),
        ({"heartbeat": {**_FILE, "path": "/healthz"}}, "heartbeat", "no path without port"),
        ({"heartbeat": {"port": "grpc", "silence_seconds": 60}}, "heartbeat.port", "ports, http, got 'grpc'"),
        ({"heartbeat": {**_FILE, "file": "/var/alive"}}, "heartbeat.file", "can write to: /tmp, /dev/shm"),
        ({"heartbeat": {"port": "http", "path": "healthz", "silence_seconds": 60}}, "heartbeat.path", "/healthz"),
        ({"check_slices": True, **PATHWAYS_JOB}, "check_slices", "whose servers hold the chips"),
        ({"records": True, "ports": {"metrics": 8000}}, "ports.metrics", "a port other than metrics 9464"),
        ({"records": True, "ports": {"other": METRICS_PORT}}, "ports.other", "a port other than metrics 9464"),
        ({"records": True, **PATHWAYS_JOB}, "records", "whose servers hold the chips"),
        ({"slice_failure": "continue"}, "slice_failure", "programs that need not stop together are a job each"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_value_is_reported_with_the_possible_ones(
    values: Values, changes: Values, path: str, words: str
) -> None:
    assert words in errors_of(with_container(values, **changes))[f"jobs.serve.{path}"]


def test_a_check_of_slices_needs_the_trainers_image(values: Values) -> None:
    assert errors_of(with_container(values, check_slices=True)).keys() == {"image"}


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

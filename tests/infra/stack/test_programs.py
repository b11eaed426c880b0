"""What runs in the pods: variables, probes and the check of slices."""

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from infra.cluster.job_state import Kind, kind_of
from infra.stack.jobset import render
from infra.stack.names import METRICS_PORT_NAME
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from sandbox.node_agent.environment import declared_variables
from tests.infra.one_job import submitted, template_of
from tests.infra.recording import Values
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.test_containers import PATHWAYS_JOB, rendered, with_container
from tests.infra.stack.test_pathways import rendered as rendered_by_pathways
from tests.infra.stack.test_pathways import stack_with
from tests.infra.stack.test_submitted import call
from tests.sandbox.node_agent.pods import pod, surroundings
from workloads.spec import CALL_KEY_VARIABLE, METRICS_PORT, SliceSpec

LABELS = {
    "jobset.sigs.k8s.io/replicatedjob-replicas": "2",
    "jobset.sigs.k8s.io/job-index": "1",
    "jobset.sigs.k8s.io/coordinator": "run-slice-0-0.run",
}
"""JobSet's, of a pod of the second of two slices."""
KINDS = ("training", "container", "function", "pathways")


def _jobset(values: Values, kind: str) -> Any:
    match kind:
        case "training":
            return render(submitted(values))
        case "function":
            return call(values)
        case "pathways":
            return rendered_by_pathways(stack_with(values))
        case _:
            return rendered(values)


def _read_variables(spec: Any) -> dict[str, str]:
    """The variables of the container on the second slice, where GKE adds none."""
    (container,) = spec["containers"]
    around = surroundings(pod(metadata={"labels": LABELS}), lambda _kind, _name: {CALL_KEY_VARIABLE: b""})
    return declared_variables(container, around, {})


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_knows_its_job_though_gke_says_nothing_of_other_slices(values: Values, kind: str) -> None:
    assert (
        _read_variables(template_of(_jobset(values, kind))["spec"]).items()
        >= {
            "MEGASCALE_NUM_SLICES": "2",
            "MEGASCALE_SLICE_ID": "1",
            "MEGASCALE_COORDINATOR_ADDRESS": "run-slice-0-0.run",
            "JOBSET_REPLICATEDJOB_PARALLELISM": "2",
        }.items()
    )


@pytest.mark.parametrize("kind", KINDS)
def test_libtpu_writes_its_logs_into_a_folder_of_the_pod_that_gke_mounts_nothing_over(
    values: Values, kind: str
) -> None:
    spec = template_of(_jobset(values, kind))["spec"]
    folder = _read_variables(spec)["TPU_LOG_DIR"]
    (container,) = spec["containers"]
    own = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    (mount,) = (mount for mount in container["volumeMounts"] if folder.startswith(f"{mount['mountPath']}/"))
    assert mount["name"] in own
    assert folder != "/tmp/tpu_logs"


FILE = {"file": "/tmp/alive", "silence_seconds": 300}


def _container(values: Values, heartbeat: Values | None) -> Any:
    (container,) = template_of(rendered(values, heartbeat=heartbeat))["spec"]["containers"]
    return container


def test_a_port_is_asked_for_connections_and_a_path_for_an_answer(values: Values) -> None:
    container = _container(values, {"port": "http", "silence_seconds": 95, "start_minutes": 5})
    times = {"periodSeconds": 10, "timeoutSeconds": 10}
    assert container["livenessProbe"] == {"tcpSocket": {"port": "http"}, "failureThreshold": 10, **times}
    assert container["startupProbe"] == {"tcpSocket": {"port": "http"}, "failureThreshold": 30, **times}
    container = _container(values, {"port": "http", "path": "/healthz", "silence_seconds": 60})
    assert container["livenessProbe"]["httpGet"] == {"port": "http", "path": "/healthz"}


def test_a_file_is_alive_as_long_as_it_is_young(values: Values, tmp_path: Path) -> None:
    probe = _container(values, FILE)["livenessProbe"]
    command = [str(tmp_path / "alive") if word == "/tmp/alive" else word for word in probe["exec"]["command"]]

    def alive() -> bool:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert not alive()
    (tmp_path / "alive").touch()
    assert alive()
    old = time.time() - 302
    os.utime(tmp_path / "alive", (old, old))
    assert not alive()


def test_a_job_without_a_heartbeat_is_not_probed(values: Values) -> None:
    assert not {"livenessProbe", "startupProbe", "readinessProbe"} & _container(values, None).keys()


@pytest.mark.parametrize(
    ("heartbeat", "path", "words"),
    [
        ({"silence_seconds": 60}, "heartbeat", "either port or file"),
        (FILE | {"port": "http"}, "heartbeat", "either port or file"),
        (FILE | {"path": "/healthz"}, "heartbeat", "no path without port"),
        ({"port": "grpc", "silence_seconds": 60}, "heartbeat.port", "one of the job's ports, http, got 'grpc'"),
        (FILE | {"file": "/var/alive"}, "heartbeat.file", "folders that the program can write to: /tmp, /dev/shm"),
        (FILE | {"silence_seconds": 5}, "heartbeat.silence_seconds", "greater than or equal to 30"),
        ({"port": "http", "path": "healthz", "silence_seconds": 60}, "heartbeat.path", "such as /healthz"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_an_impossible_heartbeat_is_refused(values: Values, heartbeat: Values, path: str, words: str) -> None:
    assert words in errors_of(with_container(values, heartbeat=heartbeat))[f"jobs.serve.{path}"]


TRAINER = f"us-east5-docker.pkg.dev/my-project/multislice-dev/trainer@sha256:{'3' * 64}"


def _checked(values: Values) -> Any:
    settings = parse(with_container(values, check_slices=True) | {"image": {"reference": TRAINER}})
    return render(submission(settings, settings.jobs["serve"], TRAINER))


def test_it_has_the_trainers_image_and_all_that_the_program_gets_of_the_host(values: Values) -> None:
    pod = template_of(_checked(values))["spec"]
    (check,), (program,) = pod["initContainers"], pod["containers"]
    assert check["image"] == TRAINER
    assert check["resources"] == program["resources"]
    assert check["securityContext"] == program["securityContext"]


def test_it_knows_its_slices_and_where_its_host_is_without_gkes_webhook(values: Values) -> None:
    (check,) = template_of(_checked(values))["spec"]["initContainers"]
    variables = {each["name"]: each.get("value") or each["valueFrom"] for each in check["env"]}
    slices = SliceSpec.model_validate_json(variables["CHECKED_SLICES"])
    assert (slices.count, slices.hosts) == (2, 2)
    hosts = variables["TPU_WORKER_HOSTNAMES"].split(",")
    assert hosts == [f"serve-slice-$(MEGASCALE_SLICE_ID)-{host}.serve" for host in range(2)]
    index = "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert variables["TPU_WORKER_ID"] == {"fieldRef": {"fieldPath": index}}


def test_its_failure_names_the_pod(values: Values) -> None:
    (replicated,) = _checked(values)["spec"]["replicatedJobs"]
    rules = replicated["template"]["spec"]["podFailurePolicy"]["rules"]
    named = [rule["onExitCodes"]["containerName"] for rule in rules if "onExitCodes" in rule]
    assert named == ["slice-check", "program"]


def test_it_needs_the_trainers_image(values: Values) -> None:
    assert "expected a value, got nothing" in errors_of(with_container(values, check_slices=True))["image"]


def test_it_is_refused_where_the_servers_of_pathways_hold_the_chips(values: Values) -> None:
    stack = with_container(values, check_slices=True, **PATHWAYS_JOB) | {"image": {"reference": TRAINER}}
    assert "whose servers hold the chips" in errors_of(stack)["jobs.serve.check_slices"]


def test_a_program_with_records_is_told_where_to_serve_metrics_and_which_file_to_touch(values: Values) -> None:
    beat = {"file": "/tmp/alive", "silence_seconds": 60}
    jobset = rendered(values, records=True, heartbeat=beat)
    (program,) = template_of(jobset)["spec"]["containers"]
    variables = {each["name"]: each for each in program["env"]}
    assert variables["METRICS_ADDRESS"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert variables["JOB_HEARTBEAT_FILE"]["value"] == "/tmp/alive"
    assert {"name": METRICS_PORT_NAME, "containerPort": METRICS_PORT} in program["ports"]
    assert kind_of(jobset) is Kind.TRAINING
    assert kind_of(rendered(values, heartbeat=beat)) is Kind.CONTAINER


@pytest.mark.parametrize(
    ("job", "path", "words"),
    [
        ({"ports": {"metrics": 8000}}, "ports.metrics", "a port other than metrics 9464"),
        ({"ports": {"other": METRICS_PORT}}, "ports.other", "a port other than metrics 9464"),
        (PATHWAYS_JOB, "records", "whose servers hold the chips"),
    ],
)
def test_records_are_refused_where_they_cannot_be_kept(values: Values, job: Values, path: str, words: str) -> None:
    assert words in errors_of(with_container(values, records=True, **job))[f"jobs.serve.{path}"]

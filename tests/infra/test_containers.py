"""The JobSet of a program that is not ours."""

from typing import Any

import pytest
import yaml

from infra.jobset import render
from infra.settings.read import parse
from infra.submission import submission
from tests.infra.recording import ROOT, Values
from tests.infra.test_jobs import CONTAINER, DIGEST

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


def test_it_is_told_where_its_files_belong_and_that_it_has_chips(rendered: Any) -> None:
    told = _variables(_container(rendered))
    assert told["JOB_FOLDER"] == "gs://my-project-multislice-dev-checkpoints/serve"
    assert (told["PJRT_DEVICE"], told["HOME"]) == ("TPU", "/tmp")


def test_what_it_sets_itself_wins(values: Values) -> None:
    env = {"PJRT_DEVICE": "CPU", "JAX_PLATFORMS": "cpu", "JAX_COMPILATION_CACHE_DIR": "gs://ours/compiled"}
    told = _variables(_container(_rendered(values, env=env)))
    assert {name: told[name] for name in env} == env


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

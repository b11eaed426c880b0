"""What every container with chips is told about its job, whatever program runs in it."""

from typing import Any

import pytest

from infra.jobset import render
from infra.settings.read import parse
from infra.submission import Submission, submission
from sandbox.node_agent.environment import declared_variables
from tests.infra.one_job import submitted
from tests.infra.recording import Values
from tests.infra.test_calls import call
from tests.infra.test_jobs import CONTAINER
from tests.infra.test_pathways import rendered as rendered_by_pathways
from tests.infra.test_pathways import stack_with
from tests.sandbox.node_agent.pods import pod, surroundings
from workloads.spec import CALL_KEY_VARIABLE

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
            return render(_container_job(values))


def _container_job(values: Values) -> Submission:
    values["jobs"] = {"run": CONTAINER | {"team": "research", "slices": {"group": "trillium", "count": 2}}}
    del values["job"]
    settings = parse(values)
    return submission(settings, settings.jobs["run"], None)


def _pod(jobset: Any) -> Any:
    (slices,) = (each for each in jobset["spec"]["replicatedJobs"] if each["name"] == "slice")
    return slices["template"]["spec"]["template"]["spec"]


def _told(spec: Any) -> dict[str, str]:
    """The variables of the container on the second slice, where GKE adds none."""
    (container,) = spec["containers"]
    around = surroundings(pod(metadata={"labels": LABELS}), lambda _kind, _name: {CALL_KEY_VARIABLE: b""})
    return declared_variables(container, around, {})


@pytest.mark.parametrize("kind", KINDS)
def test_libtpu_writes_its_logs_into_a_folder_of_the_pod_that_gke_mounts_nothing_over(
    values: Values, kind: str
) -> None:
    spec = _pod(_jobset(values, kind))
    folder = _told(spec)["TPU_LOG_DIR"]
    (container,) = spec["containers"]
    own = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    (mount,) = (mount for mount in container["volumeMounts"] if folder.startswith(f"{mount['mountPath']}/"))
    assert mount["name"] in own
    assert folder != "/tmp/tpu_logs"


@pytest.mark.parametrize("kind", KINDS)
def test_a_slice_knows_the_others_though_gke_says_nothing_of_them(values: Values, kind: str) -> None:
    told = _told(_pod(_jobset(values, kind)))
    assert told["MEGASCALE_NUM_SLICES"] == "2"
    assert told["MEGASCALE_SLICE_ID"] == "1"
    assert told["MEGASCALE_COORDINATOR_ADDRESS"] == "run-slice-0-0.run"


@pytest.mark.parametrize("kind", KINDS)
def test_a_host_knows_how_many_hosts_a_slice_has(values: Values, kind: str) -> None:
    assert _told(_pod(_jobset(values, kind)))["JOBSET_REPLICATEDJOB_PARALLELISM"] == "2"

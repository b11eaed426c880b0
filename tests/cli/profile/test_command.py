from pathlib import Path

import pytest
from rich.console import Console

from cli.halt import Halt
from cli.profile.command import profile
from infra.kubernetes import Json
from tests.cli.control.cluster import JOBSET, PODS, WORKLOAD, Cluster, jobset, running, workload

_LABELS = {
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/replicatedjob-name": "slice",
    "jobset.sigs.k8s.io/job-index": "0",
    "batch.kubernetes.io/job-completion-index": "0",
}


@pytest.mark.parametrize(
    ("variable", "says"),
    [("JOB_SPEC", "found no run; a profile takes a job that trains"), ("HOME", "but train runs another program")],
)
def test_a_job_that_does_not_train_is_not_recorded(tmp_path: Path, variable: str, says: str) -> None:
    found = jobset()
    pod: Json = {"metadata": {"name": "train-0", "labels": _LABELS}, "status": {"phase": "Running"}}
    pod["spec"] = {"containers": [{"name": "main"}]}
    template = found["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    template["spec"]["containers"][0]["env"] = [{"name": variable, "value": "{}"}]
    cluster = Cluster({JOBSET: found, WORKLOAD: workload(), f"{PODS}/train-0": pod})
    with running(cluster, tmp_path) as stack, pytest.raises(Halt, match=says) as halted:
        profile(stack, None, tmp_path / "here", 1.0, Console(), as_json=False)
    assert halted.value.exit_status == 2
    assert not (tmp_path / "here").exists()


def test_the_head_of_a_job_that_does_not_train_needs_no_host_to_say_so(tmp_path: Path) -> None:
    found = jobset()
    found["spec"]["coordinator"] = {"replicatedJob": "head"}
    labels = _LABELS | {"jobset.sigs.k8s.io/replicatedjob-name": "head"}
    pod: Json = {"metadata": {"name": "train-0", "labels": labels}, "status": {"phase": "Running"}}
    pod["spec"] = {"containers": [{"name": "program"}]}
    cluster = Cluster({JOBSET: found, WORKLOAD: workload(), f"{PODS}/train-0": pod})
    with running(cluster, tmp_path) as stack, pytest.raises(Halt, match="but train runs another program"):
        profile(stack, None, tmp_path / "here", 1.0, Console(), as_json=False)

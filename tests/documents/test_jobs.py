"""What docs/how-to/jobs.md shows and names is real."""

import re
from typing import Any

import pytest
import yaml

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from sandbox.tpu_environment import TpuWorker, cluster_variables
from tests.documents.pages import DOCS, blocks
from tests.infra.one_job import template_of
from tests.infra.recording import Values, run_program, stack_values
from workloads.spec import JOB_FOLDER_VARIABLE

TEXT = (DOCS / "how-to" / "jobs.md").read_text()


def _shown(job: str = "pretrain", added: str = "{}") -> Values:
    """Return a stack with the jobs of the page, and with settings in YAML added to one of them."""
    values = stack_values("dev") | yaml.safe_load(blocks(TEXT, "yaml")[0])
    del values["job"]
    values["jobs"][job] |= yaml.safe_load(added)
    return values


def _environment() -> dict[str, Any]:
    settings = parse(_shown())
    (container,) = template_of(render(submission(settings, settings.jobs["probe"], None)))["spec"]["containers"]
    return {variable["name"]: variable for variable in container["env"]}


def _variables(origin: str) -> list[str]:
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", TEXT, re.MULTILINE)
    return [name for names, told in rows if told == origin for name in re.findall(r"`(\w+)`", names)]


def test_its_job_by_pathways_is_accepted_and_has_the_parts_that_it_names() -> None:
    values = _shown("probe", blocks(TEXT, "yaml")[-1])
    values["cluster"]["system_machine_type"] = re.findall(r"`cluster.system_machine_type: ([\w-]+)`", TEXT)[0]
    settings = parse(values)
    rendered: Any = render(submission(settings, settings.jobs["probe"], None))
    pods = {job["name"]: job["template"]["spec"]["template"]["spec"] for job in rendered["spec"]["replicatedJobs"]}
    parts = re.findall(r"^\| `(head|slice)`, with the containers? (.*?) \|", TEXT, re.MULTILINE)
    told = {name: set(re.findall(r"`([\w-]+)`", containers)) for name, containers in parts}
    kinds = ("initContainers", "containers")
    assert told == {name: {each["name"] for kind in kinds for each in pod.get(kind, [])} for name, pod in pods.items()}


@pytest.mark.costs(cpu_seconds=8)
def test_the_resources_it_names_are_declared() -> None:
    names = {found.name for found in run_program(_shown()).registrations}
    patterns = re.findall(r"`(\w+-JOB)`", TEXT)
    assert patterns
    for pattern in patterns:
        assert {pattern.replace("JOB", job) for job in ("pretrain", "probe")} <= names


def test_variables_of_the_job_are_those_that_its_pods_declare() -> None:
    told = [*_variables("the job"), *_variables("the job, unless `env` sets them")]
    assert JOB_FOLDER_VARIABLE in told
    assert sorted(told) == sorted(_environment())


def test_variables_of_gke_are_those_that_the_sandbox_sets() -> None:
    worker = TpuWorker(slice_hostnames=("a", "b"), worker_id=0, slice_id=0, slice_count=2, coordinator="a")
    told = [name for name in _variables("GKE") if not name.startswith(("TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE"))]
    assert set(told) <= cluster_variables(worker).keys()
    assert len(told) == 2

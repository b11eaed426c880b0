"""The JobSet of a program that drives all chips by way of Pathways."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml

from infra.stack.jobset import render
from infra.stack.settings.read import parse
from infra.stack.submission import submission
from infra.stack.tpu import all_shapes
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.spoiling import errors_of
from tests.infra.stack.settings.test_jobs import CONTAINER
from tests.infra.stack.test_submitted import call

GOLDEN = ROOT / "tests" / "golden" / "jobs"
GOOGLES = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
IMAGES = {
    "server_image": f"{GOOGLES}/server@sha256:{'4' * 64}",
    "proxy_image": f"{GOOGLES}/proxy_server@sha256:{'5' * 64}",
}
PATHWAYS = {"backend": "pathways", "pathways": IMAGES}
SINGLE_HOST = {"topology": "2x2", "machine_type": "ct6e-standard-4t", "count": 1}
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-serve")


def stack_with(values: Values, **changes: object) -> Values:
    """One container that drives two slices of two hosts, with its head on a node that is large enough."""
    made = deepcopy(values)
    slices = {"group": "trillium", "count": 2}
    made["jobs"] = {"serve": CONTAINER | PATHWAYS | {"team": "research", "slices": slices} | changes}
    made["cluster"]["system_machine_type"] = "n2-standard-64"
    del made["job"], made["image"]
    return made


def on_one_host(values: Values) -> Values:
    made = stack_with(values, slices={"group": "trillium", "count": 1})
    made["slices"]["trillium"] |= SINGLE_HOST
    made["teams"]["research"]["quota"]["trillium"] = 4
    return made


def rendered(values: Values) -> Any:
    settings = parse(values)
    return render(submission(settings, settings.jobs["serve"], None))


def jobs_of(manifest: Any) -> tuple[Any, Any]:
    head, slices = manifest["spec"]["replicatedJobs"]
    assert (head["name"], slices["name"]) == ("head", "slice")
    return head, slices


def pod_of(replicated: Any) -> Any:
    return replicated["template"]["spec"]["template"]["spec"]


def containers_of(replicated: Any) -> dict[str, Any]:
    pod = pod_of(replicated)
    return {each["name"]: each for each in [*pod.get("initContainers", []), *pod["containers"]]}


@pytest.mark.parametrize(
    ("golden", "stack"), [("pathways", stack_with), ("pathways-colocated", on_one_host)], ids=["head", "colocated"]
)
def test_it_is_that_of_the_golden_file(
    values: Values, accepted_golden: Any, golden: str, stack: Callable[[Values], Values]
) -> None:
    """In `pathways-colocated` the head waits for the worker's host, so no startup policy makes the worker wait."""
    accepted_golden(GOLDEN / f"{golden}.yaml", yaml.safe_dump(rendered(stack(values)), width=120))


def with_calls(values: Values) -> Values:
    """A stack that runs calls by Pathways, and no job that does."""
    made = deepcopy(values)
    made["functions"] = {"pathways": IMAGES}
    made["cluster"]["system_machine_type"] = "n2-standard-64"
    return made


def call_on_one_host(values: Values) -> Any:
    made = with_calls(on_one_host(values))
    made["image"] = values["image"]
    return call(made, count=1, backend="pathways")


CALLS: dict[str, Callable[[Values], Any]] = {
    "pathways-call": lambda values: call(with_calls(values), backend="pathways"),
    "pathways-call-colocated": call_on_one_host,
}


@pytest.mark.parametrize("golden", CALLS)
def test_that_of_a_call_is_that_of_its_golden_file(values: Values, accepted_golden: Any, golden: str) -> None:
    accepted_golden(GOLDEN / f"{golden}.yaml", yaml.safe_dump(CALLS[golden](values), width=120))


def test_a_stack_on_which_no_head_of_a_call_would_find_a_place_is_refused(values: Values) -> None:
    wrong = with_calls(values)
    wrong["cluster"]["system_machine_type"] = "e2-standard-4"
    wrong["scheduling"] = {"placement": "topology-aware"}
    assert errors_of(wrong).keys() == {"cluster.system_machine_type", "scheduling.placement"}
    # On slices of one host the head shares it.
    wrong["slices"]["trillium"] |= SINGLE_HOST
    wrong["teams"]["research"]["quota"]["trillium"] = 4
    wrong["job"]["slices"]["count"] = 1
    wrong["scheduling"] = {"placement": "exclusive-topology"}
    assert "cluster.system_machine_type" not in errors_of(wrong)


def test_head_and_worker_fit_on_the_host_that_they_share(values: Values) -> None:
    for shape in (shape for shape in all_shapes() if shape.pathways_instance and not shape.multi_host):
        made = on_one_host(values)
        size = {"generation": shape.generation, "topology": shape.topology, "machine_type": shape.machine_type}
        made["slices"]["trillium"] |= size
        made["teams"]["research"]["quota"]["trillium"] = shape.chips
        pods = jobs_of(rendered(made))
        asked = [each["resources"]["requests"] for replicated in pods for each in containers_of(replicated).values()]
        assert sum(int(each["cpu"]) for each in asked) <= 0.75 * shape.vcpus_per_host
        assert sum(int(each["memory"].removesuffix("Gi")) for each in asked) <= 0.75 * shape.memory_gib_per_host
        assert all(int(each["cpu"]) and int(each["memory"].removesuffix("Gi")) for each in asked)


def test_secrets_and_mounted_data_are_the_programs_alone(values: Values) -> None:
    stack = stack_with(values)
    stack["datasets"] = {"bucket": "text", "mount": True}
    stack["secrets"] = {"HF_TOKEN": "a"}
    head, slices = jobs_of(run_program(stack, secret=["secrets"]).named(*JOB).inputs)
    assert [volume["name"] for volume in pod_of(slices)["volumes"]] == ["shared-memory", "temporary"]
    assert "datasets" in [volume["name"] for volume in pod_of(head)["volumes"]]
    containers = {**containers_of(head), **containers_of(slices)}
    assert [name for name, each in containers.items() if "HF_TOKEN" in str(each["env"])] == ["program"]


def test_the_longest_name_that_settings_allow_fits_into_the_coordinators(values: Values) -> None:
    name = "a" * 26
    made = stack_with(values)
    made["jobs"] = {name: made["jobs"]["serve"]}
    settings = parse(made)
    manifest: Any = render(submission(settings, settings.jobs[name], None))
    coordinator = manifest["spec"]["coordinator"]["replicatedJob"]
    assert len(f"{name}-{coordinator}-0-0.{name}") <= 63

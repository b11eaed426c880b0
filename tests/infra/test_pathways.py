"""The JobSet of a program that drives all chips by way of Pathways."""

from copy import deepcopy
from typing import Any

import pytest
import yaml

from infra.jobset import render
from infra.settings.errors import SettingsError
from infra.settings.read import parse
from infra.submission import submission
from infra.tpu import all_shapes
from tests.infra.recording import ROOT, Values, run_program
from tests.infra.settings.test_jobs import CONTAINER

GOLDEN = ROOT / "tests" / "golden" / "jobs"
GOOGLES = "us-docker.pkg.dev/cloud-tpu-v2-images/pathways"
IMAGES = {
    "server_image": f"{GOOGLES}/server@sha256:{'4' * 64}",
    "proxy_image": f"{GOOGLES}/proxy_server@sha256:{'5' * 64}",
}
PATHWAYS = {"backend": "pathways", "pathways": IMAGES}
JOB = ("kubernetes:jobset.x-k8s.io/v1alpha2:JobSet", "job-serve")
SINGLE_HOST = {"topology": "2x2", "machine_type": "ct6e-standard-4t", "count": 1}


@pytest.fixture
def stack(values: Values) -> Values:
    """One container that drives two slices of two hosts, with its head on a node that is large enough."""
    return stack_with(values)


def stack_with(values: Values, **changes: object) -> Values:
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


def read_variables(container: Any) -> dict[str, str]:
    """The container's environment, with the path of a field for its value."""
    return {
        each["name"]: each.get("value") or each["valueFrom"].get("fieldRef", {}).get("fieldPath", "")
        for each in container["env"]
    }


def faults(values: Values) -> dict[str, str]:
    with pytest.raises(SettingsError) as error:
        parse(values)
    return {fault.path: str(fault) for fault in error.value.errors}


def test_on_slices_of_several_hosts_it_is_that_of_the_golden_file(stack: Values, accepted_golden: Any) -> None:
    accepted_golden(GOLDEN / "pathways.yaml", yaml.safe_dump(rendered(stack), width=120))


def test_on_a_slice_of_one_host_it_is_that_of_the_golden_file(values: Values, accepted_golden: Any) -> None:
    accepted_golden(GOLDEN / "pathways-colocated.yaml", yaml.safe_dump(rendered(on_one_host(values)), width=120))


def test_the_program_runs_once_and_finds_the_proxy_in_place_of_chips(stack: Values) -> None:
    head, _ = jobs_of(rendered(stack))
    assert (head["replicas"], head["template"]["spec"]["completions"]) == (1, 1)
    program = containers_of(head)["program"]
    assert program["image"] == CONTAINER["image"]
    assert "google.com/tpu" not in program["resources"]["requests"]
    assert read_variables(program)["JAX_PLATFORMS"] == "proxy"
    assert read_variables(program)["JAX_BACKEND_TARGET"] == "grpc://$(PATHWAYS_HEAD):29000"
    assert read_variables(program)["PATHWAYS_HEAD"] == "metadata.labels['jobset.sigs.k8s.io/coordinator']"
    assert "PJRT_DEVICE" not in read_variables(program)
    names = [each["name"] for each in program["env"]]
    assert names.index("PATHWAYS_HEAD") < names.index("JAX_BACKEND_TARGET"), "a reference finds only earlier variables"


def test_the_servers_run_next_to_the_program_and_end_with_it(stack: Values) -> None:
    head, _ = jobs_of(rendered(stack))
    assert [each["name"] for each in pod_of(head)["initContainers"]] == ["resource-manager", "proxy"]
    assert {each["restartPolicy"] for each in pod_of(head)["initContainers"]} == {"Always"}
    manager, proxy = pod_of(head)["initContainers"]
    assert (manager["image"], proxy["image"]) == (IMAGES["server_image"], IMAGES["proxy_image"])
    assert "--instance_count=2" in manager["args"]
    assert "--instance_type=tpuv6e:2x4" in manager["args"]
    assert "--resource_manager_address=$(PATHWAYS_HEAD):29001" in proxy["args"]


def test_every_host_runs_a_worker_with_all_its_chips_that_knows_the_head(stack: Values) -> None:
    _, slices = jobs_of(rendered(stack))
    assert (slices["replicas"], slices["template"]["spec"]["parallelism"]) == (2, 2)
    worker = containers_of(slices)["worker"]
    assert worker["image"] == IMAGES["server_image"]
    assert worker["resources"]["limits"] == {"google.com/tpu": "4"}
    assert "--resource_manager_address=$(PATHWAYS_HEAD):29001" in worker["args"]
    assert (
        read_variables(worker)["MEGASCALE_NUM_SLICES"] == "metadata.labels['jobset.sigs.k8s.io/replicatedjob-replicas']"
    )
    assert read_variables(worker)["MEGASCALE_SLICE_ID"] == "metadata.labels['jobset.sigs.k8s.io/job-index']"
    assert not containers_of(slices).keys() - {"worker"}


def test_all_of_them_keep_what_they_write_for_each_other_in_the_jobs_own_folder(stack: Values) -> None:
    head, slices = jobs_of(rendered(stack))
    servers = [*pod_of(head)["initContainers"], *pod_of(slices)["containers"]]
    folder = "--gcs_scratch_location=gs://my-project-multislice-dev-checkpoints/serve/pathways"
    assert all(folder in server["args"] for server in servers)


def test_the_coordinator_is_the_head_and_its_success_is_the_jobs(stack: Values) -> None:
    spec = rendered(stack)["spec"]
    assert spec["coordinator"] == {"replicatedJob": "head", "jobIndex": 0, "podIndex": 0}
    assert spec["successPolicy"] == {"operator": "All", "targetReplicatedJobs": ["head"]}
    assert spec["startupPolicy"] == {"startupPolicyOrder": "InOrder"}


def test_the_failure_of_any_part_restarts_all_of_them(stack: Values) -> None:
    for replicated, container in zip(jobs_of(rendered(stack)), ("program", "worker"), strict=True):
        job = replicated["template"]["spec"]
        disrupted, other = job["podFailurePolicy"]["rules"]
        assert job["backoffLimit"] == 0
        assert disrupted["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]
        assert other["onExitCodes"] == {"containerName": container, "operator": "NotIn", "values": [0]}


def test_each_slice_keeps_to_its_node_pool_and_the_head_to_a_system_node(stack: Values) -> None:
    manifest = rendered(stack)
    head, slices = jobs_of(manifest)
    topology = "alpha.jobset.sigs.k8s.io/exclusive-topology"
    assert "annotations" not in manifest["metadata"]
    assert slices["template"]["metadata"]["annotations"] == {topology: "cloud.google.com/gke-nodepool"}
    assert head["template"]["metadata"]["annotations"] == {topology: "kubernetes.io/hostname"}
    assert pod_of(head)["nodeSelector"] == {"cloud.google.com/gke-nodepool": "system"}
    assert not [each for each in pod_of(head)["tolerations"] if each["key"] == "google.com/tpu"]


def test_where_slices_come_on_request_the_workers_ask_for_them_by_affinity(stack: Values) -> None:
    stack["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 2}
    head, slices = jobs_of(rendered(stack))
    assert pod_of(slices)["affinity"].keys() == {"podAffinity", "podAntiAffinity"}
    assert "metadata" not in slices["template"]
    assert "affinity" not in pod_of(head)


def test_on_a_slice_of_one_host_the_head_goes_to_the_host_of_the_worker(values: Values) -> None:
    manifest = rendered(on_one_host(values))
    head, slices = jobs_of(manifest)
    (beside,) = pod_of(head)["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert beside["topologyKey"] == "kubernetes.io/hostname"
    assert beside["labelSelector"]["matchLabels"] == {
        "jobset.sigs.k8s.io/jobset-name": "serve",
        "jobset.sigs.k8s.io/replicatedjob-name": "slice",
    }
    assert pod_of(head)["nodeSelector"] == pod_of(slices)["nodeSelector"]
    assert pod_of(head)["tolerations"] == pod_of(slices)["tolerations"]
    assert "startupPolicy" not in manifest["spec"], "the head waits for the worker's host, so the worker may not wait"
    assert "affinity" not in pod_of(slices)


def test_a_shared_flex_start_host_keeps_other_slices_out_but_not_the_jobs_own_head(values: Values) -> None:
    made = on_one_host(values)
    made["slices"]["trillium"]["capacity"] = {"kind": "flex-start", "max_run_hours": 2}
    _, slices = jobs_of(rendered(made))
    (apart,) = pod_of(slices)["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    exception = {"key": "jobset.sigs.k8s.io/replicatedjob-name", "operator": "NotIn", "values": ["head"]}
    assert exception in apart["labelSelector"]["matchExpressions"]


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


def test_the_head_asks_for_what_google_gives_its_servers(stack: Values) -> None:
    head = containers_of(jobs_of(rendered(stack))[0])
    assert {name: each["resources"]["requests"] for name, each in head.items()} == {
        "resource-manager": {"cpu": "8", "memory": "31Gi"},
        "proxy": {"cpu": "16", "memory": "93Gi"},
        "program": {"cpu": "24", "memory": "93Gi"},
    }


def test_the_pods_are_confined_and_have_no_token(stack: Values) -> None:
    for replicated in jobs_of(rendered(stack)):
        pod = pod_of(replicated)
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsUser"] == 10001
        assert [volume["name"] for volume in pod["volumes"]] == ["shared-memory", "temporary"]
        assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in containers_of(replicated).values())


def test_secrets_and_mounted_data_are_the_programs_alone(stack: Values) -> None:
    stack["datasets"] = {"bucket": "text", "mount": True}
    stack["secrets"] = {"HF_TOKEN": "a"}
    head, slices = jobs_of(run_program(stack, secret=["secrets"]).named(*JOB).inputs)
    assert [volume["name"] for volume in pod_of(slices)["volumes"]] == ["shared-memory", "temporary"]
    assert "datasets" in [volume["name"] for volume in pod_of(head)["volumes"]]
    having = [
        name
        for name, each in {**containers_of(head), **containers_of(slices)}.items()
        if "HF_TOKEN" in read_variables(each)
    ]
    assert having == ["program"]


def test_the_error_of_a_training_job_says_how_to_use_pathways(values: Values) -> None:
    values["job"]["backend"] = "pathways"
    said = faults(values)
    assert said.keys() == {"job.backend"}
    assert "a job of kind container with a program that calls pathwaysutils.initialize()" in said["job.backend"]


def test_all_that_is_wrong_with_one_is_said_at_once(values: Values) -> None:
    wrong = stack_with(
        values,
        slices={"group": "trillium", "count": 2, "min_count": 1},
        env={"JAX_PLATFORMS": "tpu"},
        ports={"mine": 29001},
    )
    wrong["cluster"]["system_machine_type"] = "e2-standard-4"
    wrong["scheduling"] = {"placement": "topology-aware"}
    assert faults(wrong).keys() == {
        "jobs.serve.slices.min_count",
        "jobs.serve.env.JAX_PLATFORMS",
        "jobs.serve.ports.mine",
        "cluster.system_machine_type",
        "scheduling.placement",
    }


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({"pathways": None}, "jobs.serve.pathways"),
        ({"backend": "direct"}, "jobs.serve.pathways"),
        ({"pathways": {**IMAGES, "proxy_image": f"{GOOGLES}/proxy_server:latest"}}, "jobs.serve.pathways.proxy_image"),
        ({"pathways": {"server_image": IMAGES["server_image"]}}, "jobs.serve.pathways.proxy_image"),
    ],
)
def test_backend_and_images_come_together_and_images_by_digest(values: Values, changes: Values, path: str) -> None:
    assert faults(stack_with(values, **changes)).keys() == {path}


def test_a_host_that_is_shared_has_no_size_of_a_head(values: Values) -> None:
    made = on_one_host(values)
    made["jobs"]["serve"]["pathways"] = {**IMAGES, "head_vcpus": 8}
    assert faults(made).keys() == {"jobs.serve.pathways.head_vcpus"}


def test_machines_that_pathways_has_no_name_for_are_refused(values: Values) -> None:
    made = on_one_host(values)
    made["slices"]["trillium"] |= {"topology": "1x1", "machine_type": "ct6e-standard-1t"}
    assert "ct6e-standard-4t" in faults(made)["jobs.serve.slices.group"]


def test_the_longest_name_that_settings_allow_fits_into_the_coordinators(values: Values) -> None:
    name = "a" * 26
    made = stack_with(values)
    made["jobs"] = {name: made["jobs"]["serve"]}
    settings = parse(made)
    manifest: Any = render(submission(settings, settings.jobs[name], None))
    coordinator = manifest["spec"]["coordinator"]["replicatedJob"]
    assert len(f"{name}-{coordinator}-0-0.{name}") <= 63

from typing import Any

import pytest

from sandbox.node_agent.environment import ConfigError
from sandbox.node_agent.pod import Pod
from sandbox.tpu_environment import cpu_variables, device_variables, webhook_variables
from tests.sandbox.node_agent.pods import NODE, container, pod

ADDRESS = "127.77.1.1"
LABELS = {
    "batch.kubernetes.io/job-completion-index": "1",
    "jobset.sigs.k8s.io/jobset-name": "train",
    "jobset.sigs.k8s.io/replicatedjob-name": "slice",
    "jobset.sigs.k8s.io/job-index": "2",
    "jobset.sigs.k8s.io/replicatedjob-replicas": "3",
}


def tpu_container(name: str = "jax", chips: int = 4) -> dict[str, Any]:
    return container(name, resources={"limits": {"google.com/tpu": str(chips)}})


def worker(**spec: Any) -> Pod:
    fields: dict[str, Any] = {"containers": [tpu_container()], "subdomain": "train", "metadata": {"labels": LABELS}}
    return pod("train-slice-2-1-x", **{**fields, **spec})


def job(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "train-slice-2"}, "spec": {"completionMode": "Indexed", "parallelism": 2, **spec}}


def test_a_jobset_worker_knows_its_slice_its_place_and_the_first_host_of_all() -> None:
    assert webhook_variables(tpu_container(), worker(), job()) == {
        "TPU_WORKER_ID": "1",
        "TPU_WORKER_HOSTNAMES": "train-slice-2-0.train,train-slice-2-1.train",
        "MEGASCALE_NUM_SLICES": "3",
        "MEGASCALE_SLICE_ID": "2",
        "MEGASCALE_COORDINATOR_ADDRESS": "train-slice-0-0.train",
        "MEGASCALE_PORT": "8080",
    }


def test_an_init_container_does_not_get_its_place_because_gke_documents_it_only_for_containers() -> None:
    check = tpu_container() | {"name": "check"}
    assert webhook_variables(check, worker(initContainers=[check]), job()) == {}


def test_a_plain_indexed_job_is_one_slice_led_by_its_own_first_pod() -> None:
    index_only = {"labels": {"batch.kubernetes.io/job-completion-index": "1"}}
    found = webhook_variables(tpu_container(), worker(metadata=index_only), job())
    assert (found["MEGASCALE_NUM_SLICES"], found["MEGASCALE_SLICE_ID"]) == ("1", "0")
    assert found["MEGASCALE_COORDINATOR_ADDRESS"] == "train-slice-2-0.train"


@pytest.mark.parametrize("spec", [{"parallelism": 1}, {"completionMode": "NonIndexed"}])
def test_a_job_that_is_not_indexed_or_has_one_pod_gets_single_host_defaults(spec: dict[str, Any]) -> None:
    found = webhook_variables(tpu_container(), worker(), job(**spec))
    assert (found["TPU_WORKER_ID"], found["TPU_WORKER_HOSTNAMES"], found["MEGASCALE_NUM_SLICES"]) == (
        "0",
        "localhost",
        "1",
    )


def test_without_subdomain_or_job_a_pod_is_a_host_of_its_own() -> None:
    assert webhook_variables(tpu_container(), worker(subdomain=None), job())["TPU_WORKER_HOSTNAMES"] == "localhost"
    assert webhook_variables(tpu_container(), worker(), None)["TPU_WORKER_HOSTNAMES"] == "localhost"


def test_two_containers_of_a_7x_host_are_two_processes() -> None:
    halves = [tpu_container("left", 2), tpu_container("right", 2)]
    me = worker(containers=halves, nodeSelector={"cloud.google.com/gke-tpu-accelerator": "tpu7x"})
    found = webhook_variables(halves[1], me, job())
    assert found["TPU_WORKER_ID"] == "3"
    assert found["TPU_PROCESS_PORT"] == "8477"
    assert found["TPU_PROCESS_ADDRESSES"] == ",".join(
        f"train-slice-2-{host}.train:{port}" for host in (0, 1) for port in (8476, 8477)
    )


def test_a_container_without_chips_gets_nothing() -> None:
    assert webhook_variables(container(), worker(), job()) == {}
    assert device_variables(container(), NODE) == {}
    assert cpu_variables(container(), NODE, ADDRESS) == {}


def test_the_device_plugin_describes_the_slice_and_the_host() -> None:
    found = device_variables(tpu_container(), NODE)
    assert found["TPU_TOPOLOGY"] == "4x4"
    assert found["TPU_ACCELERATOR_TYPE"] == "v6e-16"
    assert found["TPU_CHIPS_PER_HOST_BOUNDS"] == "2,2,1"
    assert found["TPU_HOST_BOUNDS"] == "2,2,1"
    devices = cpu_variables(tpu_container(), NODE, ADDRESS)
    assert devices["JAX_NUM_CPU_DEVICES"] == "4"
    assert devices["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert devices["XLA_FLAGS"] == "--xla_backend_optimization_level=1"
    assert devices["JAX_COORDINATOR_BIND_ADDRESS"] == f"{ADDRESS}:8482"


def test_a_7x_chip_is_two_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = {"node.kubernetes.io/instance-type": "tpu7x-standard-4t", "cloud.google.com/gke-tpu-topology": "2x2x2"}
    monkeypatch.setitem(NODE["metadata"], "labels", labels)
    assert device_variables(tpu_container(), NODE)["TPU_ACCELERATOR_TYPE"] == "tpu7x-16"
    assert cpu_variables(tpu_container(), NODE, ADDRESS)["JAX_NUM_CPU_DEVICES"] == "8"


def test_a_node_of_no_known_slice_and_an_odd_number_of_chips_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="a container gets 1, 2, 4, 8 chips, not 3"):
        device_variables(tpu_container(chips=3), NODE)
    monkeypatch.setitem(NODE["metadata"], "labels", {})
    with pytest.raises(ConfigError, match="no TPU for container 'jax' on node 'slice-0-0'"):
        device_variables(tpu_container(), NODE)

"""Which TPU variables GKE would add to a container: its webhook's and device plugin's decisions.

Names and values are in `sandbox.tpu_environment`; here the pod, its Job and its node are read.
"""

from infra.names import ACCELERATOR_LABEL, COMPLETION_INDEX_LABEL, JOBSET_LABELS, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.tpu import SliceShape, generations, shape_of
from sandbox.node_agent.environment import Surroundings
from sandbox.node_agent.pod import ConfigError, Json, Pod
from sandbox.tpu_environment import (
    SINGLE_HOST,
    TpuWorker,
    cluster_variables,
    cpu_devices,
    device_plugin_variables,
    process_variables,
)

_MACHINE_LABEL = "node.kubernetes.io/instance-type"


def requested_chips(container: Json) -> int:
    """Chips that a container asks for; 0 if it is no TPU container."""
    return int(container.get("resources", {}).get("limits", {}).get(TPU_RESOURCE, 0))


def webhook_variables(container: Json, pod: Pod, job: Json | None) -> dict[str, str]:
    """What GKE's webhook puts into the container's specification.

    It acts on Indexed Jobs of several pods with a subdomain; other TPU pods are hosts of their own. That it acts on
    init containers is not documented, so here it does not.
    """
    if not requested_chips(container) or container["name"] not in _tpu_containers(pod):
        return {}
    worker = _worker(container, pod, job) if job and _spans_hosts(job, pod) else SINGLE_HOST
    variables = cluster_variables(worker)
    accelerator = pod.spec.get("nodeSelector", {}).get(ACCELERATOR_LABEL)
    if any(each.shares_host for each in generations() if each.accelerator == accelerator):
        variables |= process_variables(worker, len(_tpu_containers(pod)))
    return variables


def device_variables(container: Json, around: Surroundings) -> dict[str, str]:
    """What the device plugin adds when the container is made.

    Raises:
        ConfigError: the node's labels name no slice that GKE offers, or a host has no such part.
    """
    chips = requested_chips(container)
    if not chips:
        return {}
    try:
        return device_plugin_variables(_shape(around), chips)
    except ValueError as error:
        raise ConfigError(f"no TPU for container {container['name']!r} on node {around.pod.node!r}: {error}") from error


def cpu_variables(container: Json, around: Surroundings) -> dict[str, str]:
    """CPU devices for the chips of a container that `device_variables` takes; over what it declares, which is JAX's
    platform among others."""
    chips = requested_chips(container)
    return cpu_devices(chips * _shape(around).devices_per_chip, around.address) if chips else {}


def _shape(around: Surroundings) -> SliceShape:
    labels = around.node["metadata"].get("labels", {})
    return shape_of(labels.get(_MACHINE_LABEL, ""), labels.get(TOPOLOGY_LABEL, ""))


def _spans_hosts(job: Json, pod: Pod) -> bool:
    spec = job["spec"]
    return spec.get("completionMode") == "Indexed" and bool(pod.subdomain) and spec.get("parallelism", 1) > 1


def _worker(container: Json, pod: Pod, job: Json) -> TpuWorker:
    job_name = job["metadata"]["name"]
    hosts: int = job["spec"]["parallelism"]
    tpu_containers = _tpu_containers(pod)
    host_index = int(pod.labels[COMPLETION_INDEX_LABEL])
    first_job = job_name
    if jobset := pod.labels.get(f"{JOBSET_LABELS}/jobset-name"):
        first_job = f"{jobset}-{pod.labels[f'{JOBSET_LABELS}/replicatedjob-name']}-0"
    return TpuWorker(
        slice_hostnames=tuple(f"{job_name}-{host}.{pod.subdomain}" for host in range(hosts) for _ in tpu_containers),
        worker_id=host_index * len(tpu_containers) + tpu_containers.index(container["name"]),
        slice_id=int(pod.labels.get(f"{JOBSET_LABELS}/job-index", 0)),
        slice_count=int(pod.labels.get(f"{JOBSET_LABELS}/replicatedjob-replicas", 1)),
        coordinator=f"{first_job}-0.{pod.subdomain}",
    )


def _tpu_containers(pod: Pod) -> list[str]:
    return [container["name"] for container in pod.containers if requested_chips(container)]

"""The environment variables that GKE's webhook and TPU device plugin set in a container, on CPU devices.

Names and values follow GKE (webhook: TPU_WORKER_*, MEGASCALE_*; device plugin: TPU_TOPOLOGY and the like, as in
kubernetes-sigs/dra-driver-google-tpu). `cpu_devices` holds all that differs from a TPU VM: chips appear as CPU devices,
and JAX looks for a TPU cluster although there is no chip.
"""

from dataclasses import dataclass

from infra.cluster.kubernetes import Json
from infra.stack.names import ACCELERATOR_LABEL, COMPLETION_INDEX_LABEL, JOBSET_LABELS, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.stack.tpu import SliceShape, dimensions, generations, shape_of
from sandbox.node_agent.environment import ConfigError
from sandbox.node_agent.pod import Pod

MACHINE_LABEL = "node.kubernetes.io/instance-type"

JAX_COORDINATOR_PORT = 8482
"""JAX's default port of the coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""

MEGASCALE_PORT = 8080
"""Port of the Megascale coordinator in GKE's multislice samples."""

FIRST_PROCESS_PORT = 8476
"""Port of a host's first TPU process on 7x; a second container of the pod has the next one."""

_CHIP_BOUNDS = {1: (1, 1, 1), 2: (1, 2, 1), 4: (2, 2, 1), 8: (2, 4, 1)}
"""How the device plugin arranges the chips that one container requests."""


@dataclass(frozen=True)
class TpuWorker:
    """One host of one slice, as its container sees it."""

    slice_hostnames: tuple[str, ...]
    """Hosts of this slice in worker order, as `TPU_WORKER_HOSTNAMES` lists them."""
    worker_id: int
    slice_id: int
    slice_count: int
    coordinator: str
    """Host name of the first worker of the first slice."""


SINGLE_HOST = TpuWorker(("localhost",), worker_id=0, slice_id=0, slice_count=1, coordinator="localhost")
"""A TPU container outside a multi-host slice."""


def cluster_variables(worker: TpuWorker) -> dict[str, str]:
    """Return the variables with the place of a TPU container among the others.

    On GKE the webhook sets them for multi-host slices, and the metadata server provides them to single hosts.
    """
    return {
        "TPU_WORKER_ID": str(worker.worker_id),
        "TPU_WORKER_HOSTNAMES": ",".join(worker.slice_hostnames),
        "MEGASCALE_NUM_SLICES": str(worker.slice_count),
        "MEGASCALE_SLICE_ID": str(worker.slice_id),
        "MEGASCALE_COORDINATOR_ADDRESS": worker.coordinator,
        "MEGASCALE_PORT": str(MEGASCALE_PORT),
    }


def process_variables(worker: TpuWorker, processes_per_host: int) -> dict[str, str]:
    """Return the variables that the webhook adds on 7x, where several containers of a pod may share a host's chips."""
    addresses = (
        f"{hostname}:{FIRST_PROCESS_PORT + process % processes_per_host}"
        for process, hostname in enumerate(worker.slice_hostnames)
    )
    return {
        "TPU_PROCESS_ADDRESSES": ",".join(addresses),
        "TPU_PROCESS_PORT": str(FIRST_PROCESS_PORT + worker.worker_id % processes_per_host),
    }


def device_plugin_variables(shape: SliceShape, chips: int) -> dict[str, str]:
    """Return the variables that the device plugin adds to a container with `chips` chips of a host of `shape`.

    Raises ValueError if the device plugin does not allocate that many chips.
    """
    if chips not in _CHIP_BOUNDS:
        raise ValueError(f"a container gets {', '.join(map(str, _CHIP_BOUNDS))} chips, not {chips}")
    variables = {
        "TPU_SKIP_MDS_QUERY": "true",
        "TPU_TOPOLOGY": shape.topology,
        "TPU_ACCELERATOR_TYPE": shape.accelerator_type,
    }
    chip_bounds = _CHIP_BOUNDS[chips]
    sizes = (*dimensions(shape.topology), 1)[:3]
    host_bounds = tuple(size // bound for size, bound in zip(sizes, _CHIP_BOUNDS[shape.chips_per_host], strict=True))
    for name, bounds in (("CHIPS_PER_HOST_BOUNDS", chip_bounds), ("HOST_BOUNDS", host_bounds)):
        variables |= {name: ",".join(map(str, bounds)), f"TPU_{name}": ",".join(map(str, bounds))}
    return variables


def cpu_devices(device_count: int, address: str) -> dict[str, str]:
    """Return the variables that replace the chips of a host at `address` by `device_count` CPU devices.

    Compiled programs are not cached. When XLA loads one for CPUs, it loses the order between collectives inside loops
    and those outside (`ThunkSequenceSerDesProtobuf::FromProto` makes a communicator for each loop), and devices then
    wait for each other until XLA aborts the process. So every start compiles, which is most of its processor time.
    LLVM's first level of optimization takes an eighth less of it than the default, and the steps of small models are as
    fast.
    """
    return {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_backend_optimization_level=1",
        "JAX_NUM_CPU_DEVICES": str(device_count),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{JAX_COORDINATOR_PORT}",
        "TPU_SKIP_MDS_QUERY": "true",
    }


def requested_chips(container: Json) -> int:
    """Return the number of chips that a container requests; 0 for a container without TPUs."""
    return int(container.get("resources", {}).get("limits", {}).get(TPU_RESOURCE, 0))


def webhook_variables(container: Json, pod: Pod, job: Json | None) -> dict[str, str]:
    """Return the variables that GKE's webhook adds to the container's specification.

    It acts on Indexed Jobs of several pods with a subdomain; other TPU pods are single hosts. Init containers get
    nothing here, because GKE does not document that they do.
    """
    if not requested_chips(container) or container["name"] not in _tpu_containers(pod):
        return {}
    worker = _worker(container, pod, job)
    variables = cluster_variables(worker)
    accelerator = pod.spec.get("nodeSelector", {}).get(ACCELERATOR_LABEL)
    if any(each.shares_host for each in generations() if each.accelerator == accelerator):
        variables |= process_variables(worker, len(_tpu_containers(pod)))
    return variables


def device_variables(container: Json, node: Json) -> dict[str, str]:
    """Return the variables that the device plugin adds when the container is created.

    Raises:
        ConfigError: the node's labels do not describe a slice that GKE offers, or the number of chips is not possible.
    """
    chips = requested_chips(container)
    if not chips:
        return {}
    try:
        return device_plugin_variables(_shape(node), chips)
    except ValueError as error:
        subject = f"container {container['name']!r} on node {node['metadata']['name']!r}"
        raise ConfigError(f"no TPU for {subject}: {error}") from error


def cpu_variables(container: Json, node: Json, address: str) -> dict[str, str]:
    """Return CPU devices in place of the chips of a container that `device_variables` accepts.

    They override what the container declares, such as JAX's platform.
    """
    chips = requested_chips(container)
    return cpu_devices(chips * _shape(node).devices_per_chip, address) if chips else {}


def _shape(node: Json) -> SliceShape:
    labels = node["metadata"].get("labels", {})
    return shape_of(labels.get(MACHINE_LABEL, ""), labels.get(TOPOLOGY_LABEL, ""))


def _worker(container: Json, pod: Pod, job: Json | None) -> TpuWorker:
    hosts: int = job["spec"].get("parallelism", 1) if job else 1
    if job is None or job["spec"].get("completionMode") != "Indexed" or not pod.subdomain or hosts < 2:
        return SINGLE_HOST
    tpu_containers = _tpu_containers(pod)
    host_index = int(pod.labels[COMPLETION_INDEX_LABEL])
    job_name = first_job = job["metadata"]["name"]
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

"""The environment that GKE's webhook and TPU device plugin give to a container, on CPU devices.

Names and values follow GKE (webhook: TPU_WORKER_*, MEGASCALE_*; device plugin: TPU_TOPOLOGY and
the like, as in kubernetes-sigs/dra-driver-google-tpu). What differs from a TPU VM is in
`cpu_devices` alone: chips appear as CPU devices, and JAX is told to look for a TPU cluster
although there is no chip.
"""

from dataclasses import dataclass

from infra.tpu import SliceShape, dimensions

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
"""A TPU container that is no part of a multi-host slice."""


def cluster_variables(worker: TpuWorker) -> dict[str, str]:
    """What a TPU container is told about its place among the others.

    On GKE the webhook says it to multi-host slices and the metadata server to single hosts.
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
    """What the webhook adds on 7x, where several containers of a pod may share the host's chips."""
    addresses = (
        f"{hostname}:{FIRST_PROCESS_PORT + process % processes_per_host}"
        for process, hostname in enumerate(worker.slice_hostnames)
    )
    return {
        "TPU_PROCESS_ADDRESSES": ",".join(addresses),
        "TPU_PROCESS_PORT": str(FIRST_PROCESS_PORT + worker.worker_id % processes_per_host),
    }


def device_plugin_variables(shape: SliceShape, chips: int) -> dict[str, str]:
    """What the device plugin adds to a container that requests `chips` chips of a host of `shape`.

    Raises:
        ValueError: the device plugin does not give out that many chips.
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
    """What makes `device_count` CPU devices stand for the chips of a host that owns `address`.

    They compile every program anew. When XLA loads one for CPUs, it loses the order between collectives inside loops
    and those outside (`ThunkSequenceSerDesProtobuf::FromProto` makes a communicator for each loop), and devices then
    wait for each other until XLA aborts the process.
    """
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(device_count),
        "JAX_ENABLE_COMPILATION_CACHE": "false",
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{JAX_COORDINATOR_PORT}",
        "TPU_SKIP_MDS_QUERY": "true",
    }

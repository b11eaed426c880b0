"""The environment that GKE's webhook and TPU device plugin give to a container, on CPU devices.

Names and values follow GKE (webhook: TPU_WORKER_*, MEGASCALE_*; device plugin: TPU_TOPOLOGY and
the like, as in kubernetes-sigs/dra-driver-google-tpu). What differs from a TPU VM is in
`cpu_devices` alone: chips appear as CPU devices, and JAX is told to look for a TPU cluster
although there is no chip.
"""

from dataclasses import dataclass

JAX_COORDINATOR_PORT = 8482
"""JAX's default port of the coordination service on Cloud TPU (jax/_src/clusters/cloud_tpu_cluster.py)."""

MEGASCALE_PORT = 8080
"""Port of the Megascale coordinator in GKE's multislice samples."""


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


def cluster_variables(worker: TpuWorker) -> dict[str, str]:
    """What GKE's webhook adds to the pods of a multi-host slice."""
    return {
        "TPU_WORKER_ID": str(worker.worker_id),
        "TPU_WORKER_HOSTNAMES": ",".join(worker.slice_hostnames),
        "MEGASCALE_NUM_SLICES": str(worker.slice_count),
        "MEGASCALE_SLICE_ID": str(worker.slice_id),
        "MEGASCALE_COORDINATOR_ADDRESS": worker.coordinator,
        "MEGASCALE_PORT": str(MEGASCALE_PORT),
    }


def cpu_devices(device_count: int, address: str) -> dict[str, str]:
    """What makes `device_count` CPU devices stand for the chips of a host that owns `address`."""
    return {
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(device_count),
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_COORDINATOR_BIND_ADDRESS": f"{address}:{JAX_COORDINATOR_PORT}",
        "TPU_SKIP_MDS_QUERY": "true",
    }

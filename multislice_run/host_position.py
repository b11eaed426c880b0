"""Position of a process in its job, from the variables that GKE and JobSet give to the pod."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True)
class HostPosition:
    """Position of this process in the job, from the variables of GKE and JobSet."""

    hosts: tuple[str, ...]
    """Hosts of this slice in worker order."""
    worker: int
    slice_count: int
    slice: int

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Self:
        """Return the position in `environment`. Its variables have the same precedence as in JAX
        (jax/_src/clusters/cloud_tpu_cluster.py)."""
        # On 7x, the names have ports.
        named = environment.get("TPU_PROCESS_ADDRESSES") or environment.get("TPU_WORKER_HOSTNAMES")
        path = environment.get("TPU_PROCESS_ADDRESSES_PATH")
        addresses = Path(path).read_text().strip() if path else named
        return cls(
            tuple(address.partition(":")[0] for address in (addresses or socket.gethostname()).split(",")),
            int(environment.get("TPU_WORKER_ID", "0")),
            int(environment.get("MEGASCALE_NUM_SLICES", "1")),
            int(environment.get("MEGASCALE_SLICE_ID", "0")),
        )

    @property
    def host(self) -> str:
        """Name of this host, by which people and records tell it from others.

        GKE calls the only host of a slice `localhost`, in each slice of the job.
        """
        name = self.hosts[self.worker]
        return socket.gethostname() if name == "localhost" else name

    @property
    def process(self) -> int:
        """Index among all processes, in JAX's order."""
        return self.slice * len(self.hosts) + self.worker

    def faults(self, fewest: int, slices: int, hosts: int) -> list[str]:
        """Return how the variables contradict a job of `fewest` to `slices` slices with `hosts` hosts each."""
        found: list[str] = []
        if not fewest <= self.slice_count <= slices:
            expected = slices if fewest == slices else f"{fewest} to {slices}"
            found.append(f"expected {expected} slices (MEGASCALE_NUM_SLICES), got {self.slice_count}")
        if len(self.hosts) != hosts:
            variables = "TPU_WORKER_HOSTNAMES or TPU_PROCESS_ADDRESSES"
            found.append(f"expected {hosts} hosts per slice ({variables}), got {len(self.hosts)}")
        if self.slice not in range(self.slice_count):
            found.append(f"expected a MEGASCALE_SLICE_ID below {self.slice_count}, got {self.slice}")
        return found

    @property
    def alone(self) -> bool:
        return len(self.hosts) * self.slice_count == 1

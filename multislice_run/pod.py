"""What a running pod gets: variables, paths and ports of the plan, and its position in the job by GKE and JobSet."""

import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

JOB_SPEC_VARIABLE = "JOB_SPEC"
"""Environment variable of the pod that holds the JobSpec as JSON."""

CALL_SPEC_VARIABLE = "CALL_SPEC"
CALL_KEY_VARIABLE = "CALL_KEY"
"""Environment variable of the pod that holds the CallSpec as JSON."""

SLICES_VARIABLE = "CHECKED_SLICES"
"""Environment variable of the slice check that holds the SliceSpec as JSON."""

JOB_FOLDER_VARIABLE = "JOB_FOLDER"
"""Environment variable with the folder of the checkpoint bucket for the files of a program other than the trainer."""

RUN_ID_VARIABLE = "RUN_ID"
"""Environment variable with the id of this submission of the job (the JobSet's uid on a cluster)."""

IMAGE_VARIABLE = "IMAGE"
"""Environment variable with the container image and its digest, for the record. Optional."""

START_VARIABLE = "JOB_RESTART_ATTEMPT"
"""Environment variable with the number of restarts before this attempt. It is JobSet's restart-attempt, or
comes from the supervisor of a pod that stays."""

PRICE_VARIABLE = "USD_PER_HOUR"
"""Environment variable with the price of all slices of the job in USD per hour, for the record. Optional."""

PROFILES = "profiles"
"""Folder of profiles in a run's folder."""

XPROF_FOLDER = "plugins/profile"
"""Folder in which XProf looks for captures, below its log folder."""

PROFILE_REQUEST = f"{PROFILES}/request"
"""File in a run's folder that requests a profile of some steps. The leader removes it."""

LOCAL_CHECKPOINTS_VARIABLE = "LOCAL_CHECKPOINTS"
"""Environment variable with a folder in the memory of the pod, which outlives the process. For local checkpoints."""

NODE_VARIABLE = "NODE_NAME"
"""Environment variable with the node's name. Optional."""

METRICS_ADDRESS_VARIABLE = "METRICS_ADDRESS"
"""Environment variable with the address on which the host serves its metrics. Without it, metrics are not served."""

METRICS_PORT = 9464
"""Port of the metrics, the same as of OpenTelemetry's exporters for Prometheus
(https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#prometheus-exporter)."""

HEARTBEAT_VARIABLE = "JOB_HEARTBEAT_FILE"
"""Environment variable with the file that a program with `records` touches as its sign of life. Optional."""

API_ACCESS_PATH = "/mnt"
"""Folder of the pod with `token` and `ca.crt` for the API server. Optional. Every machine has this folder, which the
sandbox needs for its mounts."""

BAD_HOST_KEY = "tpu-multislice.dev/bad-host"
"""Taint of a node whose slice has a bad host, and the annotation with the reason."""

BAD_HOST_CHARACTERS = 1024
"""Longest text of the annotation, in characters."""

ATTEMPT_BEGINS = re.compile(r"attempt (\d{1,9}) of the job begins")
"""Line in the log of a pod that stays, before those of each attempt."""


def attempt_begins(attempt: int) -> str:
    """Return the line before those of an attempt, which `attempt` others precede."""
    return f"attempt {attempt + 1} of the job begins"


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

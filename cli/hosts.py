"""Runs the host processes of a job on this machine, without a cluster.

Each process gets the environment variables that GKE sets in a container of a multi-host slice, so that JAX detects and
joins the hosts.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from sandbox.site import can_listen
from sandbox.tpu_environment import JAX_COORDINATOR_PORT, TpuWorker, cluster_variables, cpu_devices
from workloads.spec import (
    JOB_SPEC_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
    JobSpec,
    SliceSpec,
)

KILL_GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL. Hosts of a broken job hang in a collective and cannot handle SIGTERM."""

POLL_SECONDS = 0.1

_FOREIGN = ("JAX_", "TPU_", "MEGASCALE_", "XLA_")
"""Prefixes of the variables of another cluster."""


@dataclass(frozen=True)
class Host:
    """A running host process."""

    address: str
    log: Path
    process: subprocess.Popen[bytes]


class Hosts:
    """All hosts of a job, as a context manager that stops every process at its end."""

    def __init__(self, hosts: list[Host]):
        self.all = hosts

    @property
    def leader(self) -> Host:
        return self.all[0]

    def failed(self) -> list[Host]:
        return [host for host in self.all if host.process.poll() not in (None, 0)]

    def running(self) -> list[Host]:
        return [host for host in self.all if host.process.poll() is None]

    def follow(self) -> Iterator[str]:
        """Yield the leader's output line by line, until every host has ended or one has failed."""
        with self.leader.log.open() as log:
            while True:
                ended = not self.running() or bool(self.failed())
                for line in log:
                    yield line.rstrip("\n")
                if ended:
                    return
                time.sleep(POLL_SECONDS)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM to all hosts, wait at most `grace_seconds`, then kill those that are still running."""
        for host in self.running():
            host.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + grace_seconds
        while self.running() and time.monotonic() < deadline:
            time.sleep(0.05)
        for host in self.running():
            host.process.kill()
        for host in self.all:
            host.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(KILL_GRACE_SECONDS)


def start_hosts(spec: JobSpec, run_id: str, attempt: int, logs: Path, environment: Mapping[str, str]) -> Hosts:
    """Start all host processes of a training job. See `start_program`."""
    variables = {JOB_SPEC_VARIABLE: spec.model_dump_json(), **environment}
    return start_program("workloads.training", spec.slices, run_id, attempt, logs, variables)


def start_program(
    module: str, slices: SliceSpec, run_id: str, attempt: int, logs: Path, environment: Mapping[str, str]
) -> Hosts:
    """Start `python -m MODULE` on every host of the slices, with the output in the folder `logs`.

    Each host gets the environment of this process without variables of another cluster, then the variables of its own
    place, then `environment`.
    """
    addresses = free_addresses(slices.count * slices.hosts)
    variables = {RUN_ID_VARIABLE: run_id, START_VARIABLE: str(attempt), **environment}
    hosts: list[Host] = []
    for slice_id in range(slices.count):
        of_slice = tuple(addresses[slice_id * slices.hosts : (slice_id + 1) * slices.hosts])
        for worker_id in range(slices.hosts):
            log = logs / f"slice-{slice_id}-host-{worker_id}.log"
            worker = TpuWorker(of_slice, worker_id, slice_id, slices.count, addresses[0])
            hosts.append(start_host(module, slices, worker, log, variables))
    return Hosts(hosts)


def start_host(module: str, slices: SliceSpec, worker: TpuWorker, log: Path, environment: Mapping[str, str]) -> Host:
    """Start `python -m MODULE` on one host, with its output in `log`."""
    address = worker.slice_hostnames[worker.worker_id]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    place = {**cluster_variables(worker), **cpu_devices(slices.devices_per_host, address)}
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        # In a process group of its own, Ctrl-C does not reach the host. This command stops it.
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={**inherited, **place, **environment},
            stdout=output,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
    return Host(address, log, process)


def free_addresses(count: int) -> list[str]:
    """Return a loopback address per host. The coordinator's port is free on the first one."""
    for block in random.sample(range(1, 64), k=63):
        first = f"127.{block}.0.1"
        if can_listen(first, JAX_COORDINATOR_PORT):
            return [f"127.{block}.{index // 254}.{index % 254 + 1}" for index in range(count)]
    raise RuntimeError(f"port {JAX_COORDINATOR_PORT} is in use on 127.1.0.1 to 127.63.0.1; stop other runs first")

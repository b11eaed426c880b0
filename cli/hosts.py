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
from types import TracebackType
from typing import Self

from sandbox.site import can_listen
from sandbox.tpu_environment import (
    JAX_COORDINATOR_PORT,
    TpuWorker,
    cluster_variables,
    cpu_devices,
)
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, JobSpec, SliceSpec

KILL_GRACE_SECONDS = 3.0
"""Time between SIGTERM and SIGKILL. Hosts of a broken job hang in a collective and cannot handle SIGTERM."""

POLL_SECONDS = 0.1


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
        """First host of the first slice."""
        return self.all[0]

    def failed(self) -> list[Host]:
        """Return the hosts that exited with a code other than 0."""
        return [host for host in self.all if host.process.poll() not in (None, 0)]

    def running(self) -> list[Host]:
        """Return the hosts that have not ended."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop(KILL_GRACE_SECONDS)


@dataclass(frozen=True)
class Program:
    """Program that every host runs."""

    module: str
    """Module that is started with `python -m MODULE`."""
    variables: Mapping[str, str]
    """Environment variables that describe its task."""


def start_hosts(spec: JobSpec, run_id: str, attempt: int, logs: Path, environment: Mapping[str, str]) -> Hosts:
    """Start all host processes of a training job. See `start_program`."""
    trainer = Program("workloads.training", {JOB_SPEC_VARIABLE: spec.model_dump_json()})
    return start_program(trainer, spec.slices, run_id, attempt, logs, environment)


def start_program(
    program: Program, slices: SliceSpec, run_id: str, attempt: int, logs: Path, environment: Mapping[str, str]
) -> Hosts:
    """Start a program on every host of the slices, with the output in the folder `logs`.

    Each host gets the environment of this process without variables of another cluster, then the variables of its own
    place, then `environment`.
    """
    logs.mkdir(parents=True, exist_ok=True)
    addresses = _free_addresses(slices.count * slices.hosts)
    identity = {**program.variables, RUN_ID_VARIABLE: run_id, START_VARIABLE: str(attempt)}
    hosts: list[Host] = []
    for worker in _workers(addresses, slices.count):
        address = worker.slice_hostnames[worker.worker_id]
        variables = {
            **_inherited(),
            **identity,
            **cluster_variables(worker),
            **cpu_devices(slices.devices_per_host, address),
            **environment,
        }
        log = logs / f"slice-{worker.slice_id}-host-{worker.worker_id}.log"
        hosts.append(_start(program.module, address, log, variables))
    return Hosts(hosts)


def _start(module: str, address: str, log: Path, variables: dict[str, str]) -> Host:
    command = [sys.executable, "-m", module]
    with log.open("wb") as output:
        # The host is in its own process group, so that Ctrl-C reaches only this command, which then stops the hosts.
        process = subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT, process_group=0)
    return Host(address, log, process)


def _workers(addresses: list[str], slice_count: int) -> Iterator[TpuWorker]:
    hosts = len(addresses) // slice_count
    for slice_id in range(slice_count):
        names = tuple(addresses[slice_id * hosts : (slice_id + 1) * hosts])
        for worker_id in range(hosts):
            yield TpuWorker(names, worker_id, slice_id, slice_count, coordinator=addresses[0])


def _inherited() -> dict[str, str]:
    foreign = ("JAX_", "TPU_", "MEGASCALE_", "XLA_")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def _free_addresses(count: int) -> list[str]:
    """Return a loopback address per host. The coordinator's port is free on the first one."""
    for block in random.sample(range(1, 64), k=63):
        first = f"127.{block}.0.1"
        if can_listen(first, JAX_COORDINATOR_PORT):
            return [f"127.{block}.{index // 254}.{index % 254 + 1}" for index in range(count)]
    raise RuntimeError(f"port {JAX_COORDINATOR_PORT} is in use on 127.1.0.1 to 127.63.0.1; stop other runs first")

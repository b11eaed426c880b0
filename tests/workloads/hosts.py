"""Attempts of a job as GKE makes them: one process per host, over loopback."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from cli.hosts import Hosts
from tests.checkout import ROOT
from tests.processes import running_hosts
from workloads.spec import JobSpec

TIMEOUT_SECONDS = 600


def first_code(folder: Path, code: str) -> dict[str, str]:
    """Return the environment of processes that run `code` before their own, as Python's `sitecustomize`."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return {"PYTHONPATH": f"{folder}:{ROOT}"}


def sabotage(deed: str, when: str = "True") -> str:
    """Return first code with which a host does this before it trains on the batch `number`."""
    return f"""
import os, signal, threading, time
from workloads.training.data import Batches
training = Batches.training
def sabotaged(self, number):
    if {when}:
        {deed}
    return training(self, number)
Batches.training = sabotaged
"""


@dataclass(frozen=True)
class Attempt:
    """What became of all hosts, in order."""

    codes: list[int]
    logs: list[str]
    addresses: list[str]

    @property
    def lines(self) -> list[str]:
        """The output of the leader."""
        return self.logs[0].splitlines()


def attempt(
    job: JobSpec,
    number: int,
    logs: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
    strike: Callable[[Hosts, str], None] = lambda hosts, line: None,
) -> Attempt:
    """Run all hosts to their end. `strike` gets each line of the leader when it comes."""
    with running_hosts(job, number, logs, TIMEOUT_SECONDS, environment) as hosts:
        for line in hosts.follow():
            strike(hosts, line)
        codes = [host.process.wait(TIMEOUT_SECONDS) for host in hosts.all]
        return Attempt(codes, [host.log.read_text() for host in hosts.all], [host.address for host in hosts.all])


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    """Wait for what another thread or process does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)

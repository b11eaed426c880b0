"""Slices of a job with `slice_failure: continue`, which start and restart one by one, over loopback."""

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from cli.hosts import Host, free_addresses, slice_variables, start_host
from sandbox.tpu_environment import TpuWorker
from tests.workloads.hosts import sabotage, wait_until
from tests.workloads.training.running import parsed
from workloads.progress import SlicesChanged, StepProgress
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE, JobSpec

GATED = sabotage("""\
time.sleep(0.15)
        while os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
""")
"""First code with which steps take a while, and a slice begins none while `Slices.gate` exists."""

_DAMAGED = """
from workloads.group.exchange import Exchange
receive = Exchange.receive_arrays
def damaged(self, name, sender, arrays, stop, done=[]):
    traffic = receive(self, name, sender, arrays, stop)
    if ALWAYS or not done:
        done.append(1)
        max(arrays, key=lambda array: array.size).view("u1").reshape(-1)[7] ^= 4
    return traffic
Exchange.receive_arrays = damaged
"""
FIRST_DAMAGED, ALL_DAMAGED = (f"ALWAYS = {always}\n{_DAMAGED}" for always in (False, True))
"""First code with which the first state of another slice, or every one, arrives damaged at a process."""


def events(storage: Path, kind: str) -> list[dict[str, Any]]:
    """Return the events of one kind from the ledgers of all processes."""
    lines = [line for path in storage.glob("runs/*/ledger/*.jsonl") for line in path.read_text().splitlines()]
    return [event for event in map(json.loads, lines) if event["event"] == kind]


class Slices:
    """All slices of one attempt of a job, as a context manager that kills what still runs at its end."""

    def __init__(self, job: JobSpec, logs: Path, environment: Mapping[str, str], restarts: int = 0):
        self._job, self._logs = job, logs
        self._environment = {
            JOB_SPEC_VARIABLE: job.model_dump_json(),
            RUN_ID_VARIABLE: "run-1",
            START_VARIABLE: str(restarts),
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "GATE": str(logs / "gate"),
            **environment,
        }
        self.gate = logs / "gate"
        self._addresses = free_addresses(job.slices.total_hosts)
        self._restarts = [-1] * job.slices.count
        self.hosts: dict[int, list[Host]] = {}
        self._all: list[Host] = []

    def __enter__(self) -> Self:
        for one in range(self._job.slices.count):
            self.start(one)
        return self

    def __exit__(self, *_: object) -> None:
        for host in self._all:
            if host.process.poll() is None:
                host.process.kill()
            host.process.wait()

    def start(self, one: int) -> None:
        """Start the processes of a slice, as JobSet does when it restarts its Job."""
        self._restarts[one] += 1
        slices = self._job.slices
        of_slice = tuple(self._addresses[one * slices.hosts : (one + 1) * slices.hosts])
        own = slice_variables(one, slices.count, self._restarts[one])
        self.hosts[one] = [
            start_host(
                "workloads.training",
                slices,
                TpuWorker(of_slice, worker, 0, 1, of_slice[0]),
                self._logs / f"{one}-{worker}-{self._restarts[one]}.log",
                {**own, **self._environment},
            )
            for worker in range(slices.hosts)
        ]
        self._all += self.hosts[one]

    def kill(self, one: int) -> None:
        """Kill a slice as a lost node does."""
        for host in self.hosts[one]:
            host.process.send_signal(signal.SIGKILL)
        for host in self.hosts[one]:
            host.process.wait()

    def lose_and_return(self, one: int, seconds: float) -> None:
        """Kill a slice and start it again. With `GATED`, the others begin no step before it asks to join."""
        self.gate.touch()
        self.kill(one)
        self.bring_back(one, seconds)

    def bring_back(self, one: int, seconds: float) -> None:
        """Start a slice again that is gone. With `GATED`, the others begin no step before it asks to join, so that the
        job does not end first, however long the start takes."""

        def views() -> int:
            all_of_them = ", ".join(map(str, range(self._job.slices.count)))
            return sum(line.endswith(f"of slices {all_of_them}") for line in self.lines)

        before = views()
        self.gate.touch()
        self.start(one)
        wait_until(lambda: views() > before, seconds)
        self.gate.unlink()

    def until_others_train_on(self, without: int, seconds: float) -> None:
        """Wait until the others have finished a step without a slice that is gone."""
        self.until(f"lost {without}", seconds)
        self.until_step(max(self.steps) + 1, seconds)

    def pids(self, *ones: int) -> list[int]:
        return [host.process.pid for one in ones for host in self.hosts[one]]

    @property
    def lines(self) -> list[str]:
        """The output of all processes so far."""
        return [line for host in self._all for line in host.log.read_text(errors="replace").splitlines()]

    @property
    def steps(self) -> dict[int, StepProgress]:
        return {step.step: step for step in parsed(StepProgress, self.lines)}

    @property
    def changes(self) -> list[SlicesChanged]:
        """Every change of the slices in order. Each is in the log of the slice that led then."""
        return sorted(parsed(SlicesChanged, self.lines), key=lambda change: change.step)

    def until_step(self, step: int, seconds: float = 120) -> None:
        """Wait until a step is finished."""
        wait_until(lambda: step in self.steps, seconds)

    def until(self, text: str, seconds: float = 120) -> None:
        """Wait until a line contains `text`."""
        wait_until(lambda: any(text in line for line in self.lines), seconds)

    def codes(self, seconds: float = 200) -> dict[int, list[int]]:
        """Wait for all processes, and return their exit codes by slice."""
        return {one: [host.process.wait(seconds) for host in hosts] for one, hosts in self.hosts.items()}

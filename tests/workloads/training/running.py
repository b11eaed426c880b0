"""Runs in the process of the test, their programs and batches, and the records in their output."""

import time
from collections.abc import Iterable
from pathlib import Path

import jax
import pytest
from jax.sharding import Mesh

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.live_metrics import LiveMetrics
from workloads.progress import Line, StepProgress
from workloads.spec import JobSpec, MeshSpec, SliceSpec
from workloads.training.data import Batches
from workloads.training.failures import Preempted
from workloads.training.loop import train
from workloads.training.mesh import build_mesh
from workloads.training.rows import load_rows
from workloads.training.runtime import Processes
from workloads.training.step import Program

type Capture = pytest.CaptureFixture[str]

ALONE = Processes(0, 1, "host-0")


def run(job: JobSpec, processes: Processes = ALONE) -> LiveMetrics:
    """Train the job to its end, and return its metrics."""
    start = AttemptFacts("run-1", 0, time.time(), None, job.slices.count, 86.4)
    live = LiveMetrics(start, leads=True)
    train(job, start, processes, live)
    return live


def trained(job: JobSpec, capsys: Capture, processes: Processes = ALONE) -> list[str]:
    """Train the job to its end, and return its output."""
    run(job, processes)
    return capsys.readouterr().out.splitlines()


def stopped(job: JobSpec, last: int, capsys: Capture, resumed: int = 0) -> list[str]:
    """Return the output of an attempt that begins after step `resumed` and gets SIGTERM after step `last`."""

    class ToldToStop(Processes):
        def should_stop(self) -> bool:
            return next(self._asks) == last - resumed + 1

    with pytest.raises(Preempted, match=f"after step {last} with its state saved"):
        trained(job, capsys, ToldToStop(0, 1, "host-0"))
    return capsys.readouterr().out.splitlines()


def parsed[T: Line](kind: type[T], lines: Iterable[str]) -> list[T]:
    """Return the records of one kind."""
    return [*filter(None, map(kind.parse, lines))]


def losses(lines: Iterable[str]) -> dict[int, float]:
    """Return the loss of each step."""
    return {step.step: step.loss for step in parsed(StepProgress, lines)}


def program_of(job: JobSpec) -> Program:
    """Return the programs of the job on as many CPU devices as it has."""
    return Program(job, build_mesh(job.mesh, job.slices, jax.devices()[: job.mesh.devices]))


def batches_of(job: JobSpec, program: Program, cache: Path) -> Batches:
    """Return the job's batches as the program takes them."""
    rows = load_rows(job.data, job.model.vocab_size, job.training.sequence_length, cache)
    return Batches(rows, job.training, program.batch_sharding)


def mesh_of(mesh: MeshSpec) -> Mesh:
    """Return the mesh on the first CPU devices."""
    slices = SliceSpec.of_cpu(count=1, hosts=1, chips_per_host=mesh.devices)
    return build_mesh(mesh, slices, jax.devices()[: mesh.devices])

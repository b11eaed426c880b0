"""Defines the job of the trainer's benchmarks, also for peers, and processes that take its steps on request.

A process that waits for its turn uses no processor time, so several processes can take turns. A busy machine then
slows all of them down alike.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import psutil

from sandbox.daemon import CHECKOUT
from workloads.spec import (
    JobSpec,
    MeshSpec,
    ModelSpec,
    OptimizerSpec,
    SliceSpec,
    StandardLibrarySpec,
    StorageSpec,
    TrainingSpec,
)


def job(storage: str) -> JobSpec:
    """Return a job with four layers on one CPU device. It runs within a minute, and matmuls dominate its time."""
    return JobSpec(
        name="benchmark",
        preset="benchmark",
        slices=SliceSpec.of_cpu(count=1, hosts=1, chips_per_host=1),
        mesh=MeshSpec(replica=1, fsdp=1),
        model=ModelSpec(
            vocab_size=8192,
            embed_dim=256,
            mlp_dim=1024,
            layers=4,
            query_heads=4,
            kv_heads=4,
            head_dim=64,
            tied_embedding=False,
        ),
        data=StandardLibrarySpec(source="python-stdlib", max_bytes=1 << 20, held_out_fraction=0.05),
        optimizer=OptimizerSpec(
            learning_rate=0.003, warmup_steps=10, weight_decay=0.1, beta1=0.9, beta2=0.95, clip_norm=1.0
        ),
        training=TrainingSpec(
            steps=10_000,
            global_batch=8,
            sequence_length=256,
            seed=0,
            save_every_steps=10_000,
            save_every_minutes=1000,
            keep_checkpoints=1,
            evaluate_every_steps=10_000,
            evaluation_batches=1,
            compute_dtype="float32",
        ),
        storage=StorageSpec(path=storage, existing_run="anew"),
    )


def cpu_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment without variables of JAX, with all cores as one CPU device, and `more`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
    return {**inherited, "JAX_PLATFORMS": "cpu", **more}


@dataclass(frozen=True)
class Ready:
    """Report of a process after its first step."""

    parts: dict[str, float]
    """Seconds from the start of the process to the end of the first step, by part, in the order of the parts."""
    parameters: int
    versions: dict[str, str]


class StepProcess:
    """A process that takes steps on request, as a context manager that ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]):
        began = time.time()
        self._process = subprocess.Popen(
            [*command, str(began), job("").model_dump_json()],
            cwd=CHECKOUT,
            env=cpu_environment(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = Ready(**self._answer())

    @property
    def processor_seconds(self) -> float:
        """Processor time of all its threads so far."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def take(self, steps: int) -> list[float]:
        """Take this number of steps and return the seconds of each."""
        assert self._process.stdin
        self._process.stdin.write(f"{steps}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout
        # Levanter's logger writes to the same stream. An answer is a line of JSON.
        for line in self._process.stdout:
            if line.startswith(("{", "[")):
                return json.loads(line)
        raise RuntimeError(f"{self._process.args} ended with exit code {self._process.wait()}; its output says why")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait()


def answer_requests(step: Callable[[], None], ready: Ready) -> None:
    """Serve a `StepProcess`: report the first step, then take as many steps as each line requests."""
    print(json.dumps(vars(ready)), flush=True)
    for line in sys.stdin:
        seconds: list[float] = []
        for _ in range(int(line)):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        print(json.dumps(seconds), flush=True)

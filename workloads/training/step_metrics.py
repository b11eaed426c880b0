"""Writes the metrics of each step as a JSON line, on the leader, and counts skipped steps.

The files are `steps/<start>-<part>.jsonl` of a run. Their fields are in `multislice_run.records.lines`.
"""

import time
from collections import deque
from dataclasses import dataclass
from typing import Self

import jax

from multislice_run.records.ledger import StepFile
from multislice_run.records.lines import Pace, StepLine
from workloads.spec import JobSpec
from workloads.training.flops import flops_per_token, utilisation
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step import StepResult, TrainState


@dataclass(frozen=True)
class Position:
    """Position of a run, from which an attempt continues."""

    step: int
    """Number of steps done."""
    batch: int
    """Number of the next batch. A rollback repeats steps, but never batches."""

    @classmethod
    def of(cls, state: TrainState) -> Self:
        return cls(int(state.step), int(state.batch))

    @property
    def next(self) -> "Position":
        return Position(self.step + 1, self.batch + 1)


@dataclass(frozen=True)
class Result:
    """Results of a step on the host."""

    loss: float
    z_loss: float
    gradient_norm: float
    skipped: bool
    ended: float
    """Time by `time.monotonic()` when the devices had finished the step."""

    @classmethod
    def read(cls, result: StepResult) -> Self:
        loss, z_loss, norm, skipped = jax.device_get((result.loss, result.z_loss, result.gradient_norm, result.skipped))
        return cls(float(loss), float(z_loss), float(norm), bool(skipped), time.monotonic())


class StepMetrics:
    """Keeps the recent steps of this process, and writes them on the leader. It is a context manager that writes the
    rest when it ends."""

    def __init__(self, spec: JobSpec, run: Run, processes: Processes):
        self.skipped_in_a_row = 0
        self._skipped = 0
        self._spec = spec
        self._processes = processes
        self._tokens = spec.training.global_batch * spec.training.sequence_length
        self._flops = flops_per_token(spec.model, spec.training.sequence_length, spec.training.lora)
        self._recent: deque[tuple[float, float]] = deque(maxlen=spec.training.compare_hosts_every_steps)
        self._devices = jax.local_devices()
        self._lines = StepFile(run.steps, run.start) if processes.leads else None

    def __enter__(self) -> Self:
        if self._lines:
            self._lines.__enter__()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._lines:
            self._lines.__exit__(kind, error, trace)

    @property
    def unstored(self) -> list[str]:
        """Lines of the last steps that this process writes and that are not in storage yet."""
        return self._lines.unstored if self._lines else []

    def add(
        self,
        before: Position,
        result: Result,
        seconds: float,
        host_seconds: float,
        local_save_seconds: float | None = None,
    ) -> StepLine:
        """Record the step after `before` and return its line, which the leader writes to storage.

        `host_seconds` is the part of its `seconds` in which the devices waited for this host to give them the step.
        `local_save_seconds` is the time that a local save took before it.
        """
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if result.skipped else 0
        self._skipped += result.skipped
        self._recent.append((seconds, host_seconds))
        tokens_per_second = self._tokens / seconds
        stats = [device.memory_stats() or {} for device in self._devices]  # CPU devices report none
        line = StepLine(
            step=before.step + 1,
            batch=before.batch,
            time=round(time.time() - (time.monotonic() - result.ended), 3),
            loss=result.loss,
            z_loss=result.z_loss,
            gradient_norm=result.gradient_norm,
            skipped=result.skipped,
            skipped_steps=self._skipped,
            step_seconds=seconds,
            host_seconds=host_seconds,
            local_save_seconds=local_save_seconds,
            tokens_per_second=tokens_per_second,
            mfu=utilisation(tokens_per_second, self._flops, self._spec.slices),
            device_bytes_in_use=[each.get("bytes_in_use") for each in stats],
            device_peak_bytes_in_use=[each.get("peak_bytes_in_use") for each in stats],
        )
        if self._lines:
            self._lines.add(line)
        return line

    def pace(self, step: int) -> Pace:
        """Return this process's mean times since the hosts were last compared."""
        seconds, host_seconds = (sum(times) / len(self._recent) for times in zip(*self._recent, strict=True))
        return Pace(self._processes.host, step, seconds, host_seconds)

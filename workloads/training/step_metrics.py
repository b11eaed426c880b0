"""Writes the metrics of each step as a JSON line, on the leader, and counts skipped steps.

The files are `steps/<start>-<part>.jsonl` of a run. Their fields are in docs/metrics.md.
"""

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import jax

from workloads.spec import JobSpec
from workloads.training.flops import flops_per_token, utilisation
from workloads.training.metrics import LineFile, Parts
from workloads.training.pace import Pace
from workloads.training.runs import Run
from workloads.training.runtime import Processes


@dataclass(frozen=True)
class Measured:
    """Measurements of a finished step."""

    step: int
    batch: int
    """Number of its batch."""
    ended: float
    """Unix time of its end."""
    seconds: float
    host_seconds: float
    """Part of `seconds` in which the devices waited for this host to give them the step."""
    loss: float
    z_loss: float
    gradient_norm: float
    skipped: bool


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
        self._recent: deque[Measured] = deque(maxlen=spec.training.compare_hosts_every_steps)
        self._devices = jax.local_devices()
        self._lines = Parts(lambda part: LineFile(run.steps / f"{run.start}-{part}.jsonl")) if processes.leads else None

    def __enter__(self) -> Self:
        if self._lines:
            self._lines.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._lines:
            self._lines.__exit__(kind, error, traceback)

    def add(self, measured: Measured) -> Mapping[str, object]:
        """Record a step and return its line."""
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if measured.skipped else 0
        self._skipped += measured.skipped
        self._recent.append(measured)
        line = self._line(measured)
        if self._lines:
            self._lines.last().add(**line)
        return line

    def tokens_per_second(self, measured: Measured) -> float:
        """Return the tokens per second over all slices."""
        return self._tokens / measured.seconds

    def pace(self, step: int) -> Pace:
        """Return this process's mean times since the hosts were last compared."""
        count = len(self._recent)
        return Pace(
            self._processes.host,
            step,
            sum(measured.seconds for measured in self._recent) / count,
            sum(measured.host_seconds for measured in self._recent) / count,
        )

    def _line(self, measured: Measured) -> dict[str, object]:
        tokens_per_second = self.tokens_per_second(measured)
        return {
            "step": measured.step,
            "batch": measured.batch,
            "time": round(measured.ended, 3),
            "loss": _finite(measured.loss),
            "z_loss": _finite(measured.z_loss),
            "gradient_norm": _finite(measured.gradient_norm),
            "skipped": measured.skipped,
            "skipped_steps": self._skipped,
            "step_seconds": measured.seconds,
            "host_seconds": measured.host_seconds,
            "tokens_per_second": tokens_per_second,
            "mfu": utilisation(tokens_per_second, self._flops, self._spec.slices),
            **self._memory(),
        }

    def _memory(self) -> dict[str, object]:
        """Return the memory of this host's devices. CPU devices report none."""
        stats = [device.memory_stats() or {} for device in self._devices]
        return {
            "device_bytes_in_use": [each.get("bytes_in_use") for each in stats],
            "device_peak_bytes_in_use": [each.get("peak_bytes_in_use") for each in stats],
        }


def _finite(value: float) -> float | None:
    """Replace NaN and infinities by `None`, because JSON has neither."""
    return value if math.isfinite(value) else None

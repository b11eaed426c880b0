"""What each step took and gave: one JSON line per step, written by the leader.

Owns the files `steps/<start>-<part>.jsonl` of a run and what their fields mean (docs/metrics.md), and the
count of skipped steps. Files are cut into parts because object stores cannot append: only the last part
is ever written anew.
"""

import math
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import jax
from etils import epath

from workloads.spec import JobSpec
from workloads.training.flops import flops_per_token, utilisation
from workloads.training.metrics import LineFile
from workloads.training.pace import Pace
from workloads.training.runtime import Processes

LINES_PER_PART = 5000
"""About 1.5 MB: a part is written anew within a second."""


@dataclass(frozen=True)
class Measured:
    """One finished step."""

    step: int
    batch: int
    """Number of the batch that it took."""
    seconds: float
    host_seconds: float
    """Part of `seconds` before the step was on the devices."""
    loss: float
    gradient_norm: float
    skipped: bool


class StepMetrics:
    """Keeps every process's recent steps, and writes the leader's; a context manager that writes the rest."""

    def __init__(self, spec: JobSpec, folder: epath.Path, start: int, processes: Processes):
        self.skipped_in_a_row = 0
        self._skipped = 0
        self._spec = spec
        self._folder = folder
        self._start = start
        self._processes = processes
        self._tokens = spec.training.global_batch * spec.training.sequence_length
        self._flops = flops_per_token(spec.model, spec.training.sequence_length)
        self._recent: deque[Measured] = deque(maxlen=spec.training.compare_hosts_every_steps)
        self._device = jax.local_devices()[0]
        self._part = 0
        self._file: LineFile | None = None

    def __enter__(self) -> Self:
        if self._processes.leads:
            self._file = self._open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.__exit__(kind, error, traceback)

    def add(self, measured: Measured) -> None:
        """Take note of a step."""
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if measured.skipped else 0
        self._skipped += measured.skipped
        self._recent.append(measured)
        if self._file is not None:
            self._file = self._with_room(self._file)
            self._file.add(**self._line(measured))

    def forget_skipped(self) -> None:
        """The run goes on elsewhere: the next step is the first of a new row."""
        self.skipped_in_a_row = 0

    def tokens_per_second(self, measured: Measured) -> float:
        """Over all slices."""
        return self._tokens / measured.seconds

    def pace(self, step: int) -> Pace:
        """Means of this process since hosts were last compared."""
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
            "time": round(time.time(), 3),
            "loss": _finite(measured.loss),
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
        """Of the leader's first device; CPU devices tell nothing."""
        stats = self._device.memory_stats() or {}
        return {
            "device_bytes_in_use": stats.get("bytes_in_use"),
            "device_peak_bytes_in_use": stats.get("peak_bytes_in_use"),
        }

    def _with_room(self, file: LineFile) -> LineFile:
        if file.count < LINES_PER_PART:
            return file
        file.__exit__(None, None, None)
        self._part += 1
        return self._open()

    def _open(self) -> LineFile:
        return LineFile(self._folder / f"{self._start}-{self._part}.jsonl").__enter__()


def _finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None

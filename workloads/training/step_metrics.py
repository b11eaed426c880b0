"""What each step took and gave: one JSON line per step and a point of each curve, written by the leader.

Owns the files `steps/<start>-<part>.jsonl` of a run, what their fields and the curves mean (docs/metrics.md), and
the count of skipped steps.
"""

import math
from collections import deque
from collections.abc import Mapping
from contextlib import ExitStack
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
from workloads.training.tensorboard import Curves

CURVES = ("loss", "gradient_norm", "skipped", "step_seconds", "tokens_per_second", "mfu")
"""Fields of a step's line that are plotted; where one is `null` its curve has a gap."""


@dataclass(frozen=True)
class Measured:
    """One finished step."""

    step: int
    batch: int
    """Number of the batch that it took."""
    ended: float
    """Unix seconds."""
    seconds: float
    host_seconds: float
    """Part of `seconds` in which the devices waited for this host to give them the step."""
    loss: float
    gradient_norm: float
    skipped: bool


class StepMetrics:
    """Keeps every process's recent steps, and writes the leader's; a context manager that writes the rest."""

    def __init__(self, spec: JobSpec, run: Run, processes: Processes):
        self.skipped_in_a_row = 0
        self._skipped = 0
        self._spec = spec
        self._processes = processes
        self._tokens = spec.training.global_batch * spec.training.sequence_length
        self._flops = flops_per_token(spec.model, spec.training.sequence_length, spec.training.lora)
        self._recent: deque[Measured] = deque(maxlen=spec.training.compare_hosts_every_steps)
        self._devices = jax.local_devices()
        self._files = StepFiles(run) if processes.leads else None

    def __enter__(self) -> Self:
        if self._files:
            self._files.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._files:
            self._files.__exit__(kind, error, traceback)

    def add(self, measured: Measured) -> Mapping[str, object]:
        """Take note of a step; its line."""
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if measured.skipped else 0
        self._skipped += measured.skipped
        self._recent.append(measured)
        line = self._line(measured)
        if self._files:
            self._files.step(measured.step, line)
        return line

    def held_out(self, step: int, loss: float) -> None:
        """Take note of an evaluation after `step`."""
        if self._files:
            self._files.held_out(step, loss)

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
            "time": round(measured.ended, 3),
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
        """Of this host's devices; CPU devices tell nothing."""
        stats = [device.memory_stats() or {} for device in self._devices]
        return {
            "device_bytes_in_use": [each.get("bytes_in_use") for each in stats],
            "device_peak_bytes_in_use": [each.get("peak_bytes_in_use") for each in stats],
        }


class StepFiles:
    """The steps of one start on their way to storage; a context manager that writes the rest."""

    def __init__(self, run: Run):
        self._lines = Parts(lambda part: LineFile(run.steps / f"{run.start}-{part}.jsonl"))
        self._curves = Curves(run.tensorboard, run.start)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        self._open.enter_context(self._lines)
        self._open.enter_context(self._curves)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, traceback)

    def step(self, step: int, line: Mapping[str, object]) -> None:
        """Write what `step` took and gave."""
        self._lines.last().add(**line)
        values = {name: line[name] for name in CURVES}
        self._curves.step(
            step, {name: float(value) for name, value in values.items() if isinstance(value, int | float)}
        )

    def held_out(self, step: int, loss: float) -> None:
        """Plot the loss on the held-out rows after `step`."""
        if math.isfinite(loss):
            self._curves.beside(step, {"held_out_loss": loss})


def _finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None

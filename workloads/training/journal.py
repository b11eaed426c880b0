"""What a start of a run says of itself: on the screen once for the job, in each host's ledger and metrics.

Owns the clock of a step, whose time no save, evaluation or restore is part of. When something happens is up to
`loop`.
"""

import time
from dataclasses import asdict, dataclass, field
from types import TracebackType
from typing import Any, Self

from workloads.progress import FewerSlices, Line, StepProgress
from workloads.spec import JobSpec, TrainingSpec
from workloads.training.live_metrics import LiveMetrics
from workloads.training.metrics import Ledger
from workloads.training.pace import Pace, compare
from workloads.training.rollback import Position
from workloads.training.runtime import Processes
from workloads.training.start import Start
from workloads.training.step import StepResult
from workloads.training.step_metrics import Measured, StepMetrics


@dataclass
class Journal:
    """The ledger and metrics of this host, those that it shows while it trains, and the screen of the job."""

    schedule: TrainingSpec
    processes: Processes
    ledger: Ledger
    metrics: StepMetrics
    live: LiveMetrics
    _last_look: float = field(default_factory=time.monotonic)

    def __enter__(self) -> Self:
        self.ledger.__enter__()
        self.metrics.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.metrics.__exit__(kind, error, trace)
        self.ledger.__exit__(kind, error, trace)

    def started(self, start: Start, spec: JobSpec) -> None:
        """The start, and whether it is on fewer slices than the job has."""
        slices, batch = spec.slices.count, spec.training.global_batch
        self.live.planned(self.schedule, slices)
        about = {name: value for name, value in asdict(start).items() if name != "image"}
        self.record("start", **about, host=self.processes.host, slices=slices)
        if slices < start.asked_slices:
            accumulation = spec.training.accumulation
            self.announce(FewerSlices(slices, start.asked_slices, accumulation, batch, spec.padding_rows))

    def record(self, event: str, **values: Any) -> None:
        """An event of this host."""
        self.ledger.record(event, **values)
        self.live.happened(event, values)

    def announce(self, line: Line) -> None:
        """Print and record what happened; once for the job, since it is the same in every process."""
        if self.processes.leads:
            print(line.line(), flush=True)
            if not isinstance(line, StepProgress):  # which is in the steps' metrics
                self.record(type(line).__name__, **vars(line))

    def warn(self, message: str) -> None:
        """What people should look at."""
        self.record("warning", message=message)
        if self.processes.leads:
            print(message, flush=True)

    def stepped(self, before: Position, result: StepResult, host_seconds: float) -> None:
        """The step on from `before`, of which the host itself took `host_seconds`."""
        done = before.step + 1
        loss, norm, skipped = float(result.loss), float(result.gradient_norm), bool(result.skipped)
        measured = Measured(done, before.batch, self.restart_clock(), host_seconds, loss, norm, skipped)
        self.live.stepped(self.metrics.add(measured))
        rate = self.metrics.tokens_per_second(measured)
        self.announce(StepProgress(done, self.schedule.steps, loss, rate, measured.seconds * 1000))
        if skipped:
            self.warn(
                f"step {done}: loss {loss} and gradient norm {norm} must be finite;"
                " the step is skipped and changes nothing"
            )

    def compare_hosts(self, step: int) -> None:
        """Leave this host's pace for the leader, who takes what the others left up to now and waits for none."""
        pace = self.metrics.pace(step)
        self.record("pace", **asdict(pace))
        self.processes.put("pace", pace.word())
        paces = [Pace.parse(word) for word in self.processes.left("pace")] if self.processes.leads else []
        if not paces:
            return
        found = compare(paces)
        self.record("hosts", step=step, **asdict(found))
        if found.straggles:
            self.warn(
                f"step {step}: host {found.slowest} keeps the others waiting, {found.slowest_seconds * 1000:.0f} ms a"
                f" step before it starts, where the median host takes {found.median_seconds * 1000:.0f} ms"
            )

    @property
    def clock(self) -> float:
        """Seconds since it was restarted."""
        return time.monotonic() - self._last_look

    def restart_clock(self) -> float:
        """What it showed."""
        now = time.monotonic()
        seconds, self._last_look = now - self._last_look, now
        return seconds

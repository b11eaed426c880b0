"""Records what happens in an attempt: on the screen once for the job, and in each host's ledger and metrics.

It also measures steps. Saves, evaluations and restores are not part of a step's time. A thread reads the result of a
step as soon as the devices have it, so that the host can give them the next step first.
"""

import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.live_metrics import LiveMetrics
from multislice_run.records.events import BY_CLASS, EventName
from multislice_run.records.ledger import Ledger
from multislice_run.records.lines import Pace
from workloads.progress import FewerSlices, Line, StepProgress
from workloads.spec import JobSpec, TrainingSpec
from workloads.training.pace import compare
from workloads.training.runtime import Processes
from workloads.training.step import StepResult
from workloads.training.step_metrics import Position, Result, StepMetrics
from workloads.training.trackers import Trackers


@dataclass(frozen=True)
class DispatchedStep:
    """A step that the devices got and that is not recorded yet."""

    before: Position
    given: float
    """Time by `time.monotonic()` when the devices had got it."""
    result: Future[Result]

    @property
    def number(self) -> int:
        return self.before.step + 1


@dataclass
class Journal:
    """This host's ledger, step metrics and live metrics, and the job's trackers and screen."""

    schedule: TrainingSpec
    processes: Processes
    ledger: Ledger
    metrics: StepMetrics
    live: LiveMetrics
    trackers: Trackers
    _devices_free: float = field(default_factory=time.monotonic)
    """Time by `time.monotonic()` from which the devices could take the next step."""
    _local_save_seconds: float | None = None
    """Time that a local save took since the last step."""
    _reader: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1, "results"))

    def __enter__(self) -> Self:
        self.ledger.__enter__()
        self.metrics.__enter__()
        self.trackers.open(self.warn)
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._reader.shutdown(wait=False)
        self.trackers.close(completed=error is None)
        self.metrics.__exit__(kind, error, trace)
        self.ledger.__exit__(kind, error, trace)

    def record_start(self, start: AttemptFacts, spec: JobSpec) -> None:
        """Record the start of this attempt, and whether it has fewer slices than the job."""
        slices, batch = spec.slices.count, spec.training.global_batch
        self.live.set_schedule(self.schedule.steps, self.schedule.save_every_minutes * 60, slices)
        self.record(EventName.START, **start.facts(self.processes.host, slices))
        if slices < start.asked_slices:
            accumulation = spec.training.accumulation
            self.announce(FewerSlices(slices, start.asked_slices, accumulation, batch, spec.padding_rows))

    def record(self, event: EventName, **values: Any) -> None:
        self.ledger.record(event, **values)
        self.live.record_event(event, values)

    def announce(self, line: Line) -> None:
        """Print and record an event, only on the leader, because it is the same in every process."""
        if self.processes.leads:
            print(line.line(), flush=True)
            if not isinstance(line, StepProgress):  # a step is in the step metrics instead
                self.record(BY_CLASS[type(line).__name__], **vars(line))

    def warn(self, message: str) -> None:
        self.record(EventName.WARNING, message=message)
        if self.processes.leads:
            print(message, flush=True)

    def begin_step(self, before: Position, result: StepResult) -> DispatchedStep:
        """Return the step after `before`, which the devices have got and whose result will be `result`."""
        return DispatchedStep(before, time.monotonic(), self._reader.submit(Result.read, result))

    def end_step(self, step: DispatchedStep) -> None:
        result, free = step.result.result(), self._devices_free
        self._devices_free = result.ended
        # A step that was given before the previous one had ended did not keep the devices waiting.
        seconds, host_seconds = result.ended - free, max(0.0, step.given - free)
        saving, self._local_save_seconds = self._local_save_seconds, None
        line = self.metrics.add(step.before, result, seconds, host_seconds, saving)
        self.live.record_step(line)
        if self.processes.leads:
            self.trackers.step(line)
        rate = line.tokens_per_second or 0.0
        self.announce(StepProgress(step.number, self.schedule.steps, result.loss, rate, seconds * 1000))
        if result.skipped:
            self.warn(
                f"step {step.number}: loss {result.loss} or gradient norm {result.gradient_norm} is not finite or above"
                " job.optimizer.skip_norm; the step is skipped and changes nothing"
            )

    def compare_hosts(self, step: int) -> None:
        """Publish this host's pace. The leader compares the paces published so far, without waiting."""
        pace = self.metrics.pace(step)
        self.record(EventName.PACE, **asdict(pace))
        self.processes.put("pace", asdict(pace))
        paces = [Pace(**each) for each in self.processes.read_all("pace")] if self.processes.leads else []
        if not paces:
            return
        found = compare(paces)
        self.record(EventName.HOSTS, step=step, **asdict(found))
        if found.straggles:
            self.warn(
                f"step {step}: host {found.slowest} keeps the others waiting, {found.slowest_seconds * 1000:.0f} ms a"
                f" step before it starts, where the median host takes {found.median_seconds * 1000:.0f} ms"
            )

    def end_local_save(self) -> float:
        """Return the time since the last step, which a local save took. The line of the next step has it."""
        self._local_save_seconds = time.monotonic() - self._devices_free
        self.restart_clock()
        return self._local_save_seconds

    def restart_clock(self) -> None:
        """Begin the time of the next step now, because the devices did something else before."""
        self._devices_free = time.monotonic()

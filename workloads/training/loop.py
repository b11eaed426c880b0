"""Training from wherever the run stands to its last step.

Owns the order of things: program, data, run and checkpoints first, then step, report, evaluate and save.
"""

import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field

import jax

from workloads.progress import CheckpointSaved, Evaluation, Line, Outcome, RunStarted, RunSummary, StepProgress
from workloads.spec import JobSpec, TrainingSpec
from workloads.training.checkpoint import Checkpoints
from workloads.training.data import Batches, cache_folder, load_rows, require_same_rows
from workloads.training.failures import Diverged, Preempted, TrainingStopped
from workloads.training.memory import fitting
from workloads.training.mesh import build_mesh
from workloads.training.metrics import Ledger
from workloads.training.pace import Pace, compare
from workloads.training.placement import placement, show_placement
from workloads.training.profile import StepProfiler
from workloads.training.runs import Run, manifest, open_run
from workloads.training.runtime import Processes
from workloads.training.save_timer import SaveTimer
from workloads.training.step import CompiledProgram, Program, StepResult, TrainState
from workloads.training.step_metrics import Measured, StepMetrics


@dataclass(frozen=True)
class Start:
    """One start of the job: who asked for it and when."""

    run_id: str
    restart_attempt: int
    began: float
    """Unix seconds."""
    image: str | None
    """Container image with its digest, where it is known."""


def train(spec: JobSpec, start: Start, processes: Processes) -> None:
    """Train `spec` to its last step, going on from the run's newest checkpoint.

    Raises:
        TrainingStopped: a stop with a known cause.
    """
    processes.deadline.expect("data, compilation and restore", spec.training.prepare_minutes)
    mesh = build_mesh(spec.mesh, spec.slices, jax.devices())
    # Not a context: a start that fails early must not wait for the compiler before it can say so.
    compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
    program = CompiledProgram(Program(spec, mesh), compiler)
    rows = load_rows(spec.data, spec.model.vocab_size, spec.training.sequence_length, cache_folder())
    require_same_rows(rows, processes)
    batches = Batches(rows, spec.training, program.batch_sharding)
    run = open_run(spec, start.run_id, manifest(spec, rows.digest, start.image), processes)
    ledger = Ledger(run.ledger / f"{run.start}-{processes.index}.jsonl")
    checkpoints = Checkpoints(run.checkpoints, spec.training, processes)
    metrics = StepMetrics(spec, run, processes)
    profiler = StepProfiler(spec.training.profile_steps, run.profiles, run.start, processes)
    with _closed_at_a_known_end(checkpoints), ledger, metrics, profiler, fitting(spec, program.state_shapes):
        ledger.record(
            "start", run_id=start.run_id, restart_attempt=start.restart_attempt, began=start.began, host=processes.host
        )
        if processes.leads:
            show_placement(placement(spec.mesh, spec.slices, mesh, program.state_shapes), run.placement)
        Training(spec.training, processes, run, program, batches, checkpoints, ledger, metrics, profiler).run_to_end(
            start.began
        )
    processes.deadline.clear()


@contextmanager
def _closed_at_a_known_end(checkpoints: Checkpoints) -> Generator[None]:
    """Closing waits for the other hosts, which after an unknown failure wait for this one."""
    try:
        yield
    except TrainingStopped as stop:
        if stop.agreed:
            checkpoints.close()
        raise
    checkpoints.close()


@dataclass
class Training:
    """One start of one run, once everything it needs is there."""

    schedule: TrainingSpec
    processes: Processes
    run: Run
    program: CompiledProgram
    batches: Batches
    checkpoints: Checkpoints
    ledger: Ledger
    metrics: StepMetrics
    profiler: StepProfiler
    _last_report: float = field(default_factory=time.monotonic)
    _safe_step: int = field(init=False)
    """The newest step whose state a restart can go on from."""
    _timer: SaveTimer = field(init=False)

    def run_to_end(self, began: float) -> None:
        """Take all steps that are left, then evaluate.

        Raises:
            Diverged: too many steps in a row had a loss or gradient that is not finite.
            Preempted: SIGTERM; the state is saved.
            ReplicasDiffer: a device computed wrongly; nothing of it is saved.
        """
        state, outcome = self._begin()
        self.ledger.record("compile", seconds=self.program.prepare())
        self._seconds_since_last_report()
        first, last = int(state.step), self.schedule.steps
        self._announce(RunStarted(self.run.id, outcome, first, last))
        self._safe_step, self._timer = first, SaveTimer(self.schedule.save_every_minutes * 60, self.processes, first)
        for step in range(first, last):
            self._leave_if_told(step, state)
            state = self._advance(step, state)
        evaluation = self._evaluate(last, state)
        self._announce_saved(wait=True)
        self._announce(RunSummary(self.run.id, last, evaluation, time.time() - began))

    def _begin(self) -> tuple[TrainState, Outcome]:
        began = time.monotonic()
        state = self.checkpoints.restore(self.program.state_shapes, self.program.fingerprints, self._announce)
        if state is None:
            return self.program.initial(), "new"
        self.ledger.record("restore", step=int(state.step), seconds=time.monotonic() - began)
        return state, "resumed" if int(state.step) < self.schedule.steps else "already complete"

    def _advance(self, step: int, state: TrainState) -> TrainState:
        """From `step` to `step + 1`, with what the schedule asks for there."""
        done = step + 1
        self.processes.deadline.expect(f"step {done}", self.schedule.step_timeout_minutes)
        self.profiler.before(done)
        batch = self.batches.training(step)
        host_seconds = time.monotonic() - self._last_report
        state, result = self.program.step(state, batch)
        self._report(done, result, host_seconds)
        self.profiler.after(done)
        to_compare = done % self.schedule.compare_hosts_every_steps == 0
        if to_compare or done == self.schedule.steps:
            self.ledger.record("pace", **asdict(self.metrics.pace(done)))
        if to_compare:
            self._compare_hosts(done)
        self._announce_saved(wait=False)
        if self._to_save(done):
            self._save(done, state)
        if done % self.schedule.evaluate_every_steps == 0 and done < self.schedule.steps:
            self._evaluate(done, state)
        return state

    def _report(self, done: int, result: StepResult, host_seconds: float) -> None:
        loss, norm, skipped = float(result.loss), float(result.gradient_norm), bool(result.skipped)
        measured = Measured(done, self._seconds_since_last_report(), host_seconds, loss, norm, skipped)
        self.metrics.add(measured)
        progress = StepProgress(
            done, self.schedule.steps, loss, self.metrics.tokens_per_second(measured), measured.seconds * 1000
        )
        self._announce(progress)
        if not skipped:
            return
        fault = f"step {done}: loss {loss} and gradient norm {norm} must be finite"
        if self.metrics.skipped_in_a_row > self.schedule.max_skipped_steps:
            raise Diverged(
                f"{fault}, and {self.metrics.skipped_in_a_row} steps in a row were skipped for that;"
                " lower optimizer.learning_rate or look at the data of these steps"
            )
        self._warn(f"{fault}; the step is skipped and changes nothing")

    def _compare_hosts(self, done: int) -> None:
        """Leave this host's pace for the leader, who takes what the others left up to now and waits for none."""
        self.processes.put("pace", self.metrics.pace(done).word())
        if not self.processes.leads:
            return
        paces = [Pace.parse(word) for word in self.processes.left("pace")]
        if not paces:
            return
        found = compare(paces)
        self.ledger.record("hosts", step=done, **asdict(found))
        if found.straggles:
            self._warn(
                f"step {done}: host {found.slowest} keeps the others waiting, {found.slowest_seconds * 1000:.0f} ms a"
                f" step before it starts, where the median host takes {found.median_seconds * 1000:.0f} ms"
            )

    def _evaluate(self, step: int, state: TrainState) -> float:
        # The first one compiles.
        self.processes.deadline.expect(f"evaluation at step {step}", self.schedule.prepare_minutes)
        count = self.schedule.evaluation_batches
        losses = [self.program.evaluate(state.parameters, self.batches.held_out(number)) for number in range(count)]
        loss = sum(float(loss) for loss in losses) / count
        self.metrics.held_out(step, loss)
        self._announce(Evaluation(step, loss))
        self._seconds_since_last_report()
        return loss

    def _to_save(self, done: int) -> bool:
        by_step = done % self.schedule.save_every_steps == 0 or done == self.schedule.steps
        return by_step or self._timer.is_up(done)

    def _save(self, step: int, state: TrainState) -> None:
        began = time.monotonic()
        self._timer.saved(step)
        self.checkpoints.save(step, state, self.program.fingerprints(state), self.run.manifest)
        self._safe_step = step
        self.ledger.record("save", step=step, blocking_seconds=time.monotonic() - began)
        self._seconds_since_last_report()

    def _leave_if_told(self, step: int, state: TrainState) -> None:
        if not self.processes.told_to_stop(step):
            return
        if step != self._safe_step:
            self._save(step, state)
        self._announce_saved(wait=True)
        raise Preempted(f"SIGTERM: stopped after step {step} with its state saved; the next start goes on from there")

    def _announce_saved(self, wait: bool) -> None:
        for step in self.checkpoints.finished(wait):
            self._announce(CheckpointSaved(step, str(self.run.checkpoints)))

    def _announce(self, line: Line) -> None:
        """Print and record what happened; once for the job, since it is the same in every process."""
        if self.processes.leads:
            print(line.line(), flush=True)
            if not isinstance(line, StepProgress):  # which is in the steps' metrics
                self.ledger.record(type(line).__name__, **vars(line))

    def _warn(self, message: str) -> None:
        self.ledger.record("warning", message=message)
        if self.processes.leads:
            print(message, flush=True)

    def _seconds_since_last_report(self) -> float:
        """Time since the last call, so that saves and evaluations do not count as step time."""
        now = time.monotonic()
        seconds, self._last_report = now - self._last_report, now
        return seconds

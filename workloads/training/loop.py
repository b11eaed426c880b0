"""Trains a run from its newest checkpoint to its last step.

Program, data, run and checkpoints come first, then the steps. What follows a step is a list: profile,
comparisons, saves and evaluation. The host gives the devices a step before it reads the result of the previous one, so
that they do not wait for the host. If something in the list needs the state of a step, or the step may be the last
before a rollback, its result is read before the next step begins.
"""

import math
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass

import jax

from multislice_run.attempt_facts import AttemptFacts
from multislice_run.live_metrics import LiveMetrics
from multislice_run.records.events import EventName
from multislice_run.records.ledger import Ledger, add_unstored
from workloads.progress import (
    CheckpointSaved,
    Evaluation,
    Outcome,
    RolledBack,
    RunStarted,
    RunSummary,
)
from workloads.spec import JobSpec
from workloads.training.checkpoint import Checkpoints, Record, read_record
from workloads.training.data import Batches, require_same_rows
from workloads.training.failures import Diverged, Preempted, TrainingStopped
from workloads.training.fingerprint import Replicas
from workloads.training.initial_weights import InitialWeights
from workloads.training.journal import DispatchedStep, Journal
from workloads.training.kernel_choice import settle
from workloads.training.local_checkpoints import LocalCheckpoints, LocalSaves, local_folder
from workloads.training.memory import fitting
from workloads.training.mesh import build_mesh, placement, show_placement
from workloads.training.optimizer import settings_change
from workloads.training.pace import SaveTimer
from workloads.training.parameter_folder import read_about
from workloads.training.profile import StepProfiler
from workloads.training.rows import cache_folder, load_rows
from workloads.training.runs import manifest, open_run
from workloads.training.runtime import Processes
from workloads.training.step import CompiledProgram, Program, TrainState, at_batch, compiler_options
from workloads.training.step_metrics import Position, StepMetrics
from workloads.training.trackers import trackers_of


@dataclass(frozen=True)
class AfterStep:
    """Something that follows some steps. `loop.Training` has a list of them, in the order in which they run."""

    every: Callable[[int], bool]
    """Whether it follows the step with this number. Called once for each step."""
    run: Callable[[int], object]
    """Called with the number of the step, when its result is known."""
    needs_state: bool = True
    """Whether it needs the state after the step. The result is then read before the next step begins, which would use
    up the state. Otherwise the next step may be under way."""
    begin: Callable[[], None] | None = None
    """Called before the result of the step is read. Only with `needs_state`."""


def every(steps: int) -> Callable[[int], bool]:
    """Return whether a step is a multiple of `steps`."""
    return lambda step: step % steps == 0


def train(spec: JobSpec, start: AttemptFacts, processes: Processes, live: LiveMetrics) -> None:
    """Train `spec` from the run's newest checkpoint to its last step. `live` gets the metrics.

    Raises:
        TrainingStopped: a stop with a known cause.
    """
    training = Training(spec, start, processes, live)
    fits = fitting(spec, training.program.functions.device_state_shapes)
    with _closed_at_a_known_end(training.checkpoints), training.journal, training.profiler, training.batches, fits:
        training.run_to_end(start)
    processes.deadline.clear()


@contextmanager
def _closed_at_a_known_end(checkpoints: Checkpoints) -> Generator[None]:
    """Close the checkpoints, but not after an unknown failure: closing waits for the other hosts, which would wait for
    this one."""
    try:
        yield
    except TrainingStopped as stop:
        if stop.agreed:
            checkpoints.close()
        raise
    checkpoints.close()


class Training:
    """One attempt of a run with everything that it needs."""

    def __init__(self, spec: JobSpec, start: AttemptFacts, processes: Processes, live: LiveMetrics):
        self.spec, self.schedule, self.processes = spec, spec.training, processes
        self._mesh = build_mesh(spec.mesh, spec.slices, jax.devices())
        # The executor is not a context manager, because an attempt that fails early must not wait for the compiler.
        compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self._kernels = settle(spec, self._mesh, compiler_options(spec, self._mesh), processes)
        processes.deadline.expect("data, compilation and restore", self.schedule.prepare_minutes)
        functions = Program(self._kernels.made_in(spec), self._mesh)
        self.program = CompiledProgram(functions, compiler)
        length, marked = self.schedule.sequence_length, self.schedule.reads_marks
        rows = load_rows(spec.data, spec.model.vocab_size, length, cache_folder(), marked)
        require_same_rows(rows, processes)
        self.batches = Batches(rows, self.schedule, functions.batch_sharding)
        self.initial_weights = InitialWeights.of(spec)
        """Weights that a new run begins with, or that its adapters are for. `None` draws weights from the seed."""
        frozen = read_about(self.initial_weights.folder).digest if self.schedule.lora and self.initial_weights else None
        kernels, options = self._kernels.kernels, functions.compiler_options
        described = manifest(spec, self.batches.record, start.image, options, kernels, frozen)
        self.run = run = open_run(spec, start.run_id, described, processes)
        ledger = Ledger(run.ledger / f"{run.start}-{processes.index}.jsonl")
        self.checkpoints = Checkpoints(run.checkpoints, self.schedule, processes)
        self.profiler = StepProfiler(self.schedule.profile_steps, run.folder, run.start, processes)
        metrics, trackers = StepMetrics(spec, run, processes), trackers_of(spec, run, processes)
        self.journal = Journal(self.schedule, processes, ledger, metrics, live, trackers)
        self.replicas = Replicas(self._mesh.devices, spec.slices)
        self._local = None
        if self.schedule.local_save_every_steps:
            checkpoints = LocalCheckpoints(local_folder(), run, functions.state_shapes, processes)
            self._local = LocalSaves(checkpoints, self.program, self.replicas, self.journal)
        self._save_waits = self._has_evaluated = False
        self._stored_step = 0
        """Step of the newest checkpoint in storage; 0 without one."""
        self._rollbacks = 0
        self._dispatched: DispatchedStep | None = None
        """The newest step until its result is read."""
        self._after = (*self._after_results(), *self._after_states())

    def _after_results(self) -> Iterator[AfterStep]:
        hosts = every(self.schedule.compare_hosts_every_steps)
        yield AfterStep(lambda step: hosts(step) or self._ends(step), self.journal.compare_hosts, needs_state=False)
        yield AfterStep(lambda _: True, lambda _: self._announce_saved(wait=False), needs_state=False)

    def _after_states(self) -> Iterator[AfterStep]:
        yield AfterStep(self.profiler.cut_after, self.profiler.after)
        # The newest step may be the last before a rollback.
        most = self.schedule.max_skipped_steps
        yield AfterStep(lambda _: self.journal.metrics.skipped_in_a_row >= most, self._go_back_if_diverged)
        yield AfterStep(self._save_is_due, self._save_unless_skipped)
        if self.replicas.several:
            yield AfterStep(every(self.schedule.compare_slices_every_steps), self._compare_slices)
        if (local := self._local) and (steps := self.schedule.local_save_every_steps):
            due = every(steps)
            # After the last step, nothing needs a local save.
            yield AfterStep(
                lambda step: due(step) and not self._ends(step),
                lambda step: local.save(step, self._state),
                begin=lambda: local.begin(self._state),
            )
        evaluates = every(self.schedule.evaluate_every_steps)
        # The evaluation after the last step is separate.
        yield AfterStep(lambda step: evaluates(step) and not self._ends(step), self._evaluate)

    def _ends(self, step: int) -> bool:
        return step == self.schedule.steps

    def run_to_end(self, start: AttemptFacts) -> None:
        """Train the remaining steps, then evaluate.

        Raises:
            Diverged: too many steps in a row were skipped, and no rollback is left.
            Preempted: SIGTERM. The state is saved.
            ReplicasDiffer: a save or comparison found that a device computed wrongly. Its state is not saved.
        """
        self._announce_start(start)
        outcome = self._begin()
        self.journal.record(EventName.COMPILE, seconds=self.program.prepare(), **self.program.functions.choices)
        self.journal.restart_clock()
        last = self.schedule.steps
        self._position = Position.of(self._state)
        self.journal.announce(RunStarted(self.run.id, outcome, self._position.step, last))
        # The newest step from which a restart on other nodes can continue.
        self._restartable_step = self._stored_step
        self._timer = SaveTimer(self.schedule.save_every_minutes * 60, self.processes, self._position.batch)
        while self._position.step < last:
            self._leave_on_sigterm()
            self._advance()
            # The first save needs them. They come no earlier, so that the first step of a new run does not wait.
            self.program.prepare_fingerprints()
            self._follow_step()
        evaluation = self._evaluate(last)
        self._announce_saved(wait=True)
        self.journal.announce(RunSummary(self.run.id, last, evaluation, time.time() - start.began))

    def _announce_start(self, start: AttemptFacts) -> None:
        self.journal.record_start(start, self.spec)
        for line in self._kernels.lines:
            self.journal.announce(line)
        if self.processes.leads:
            placed = placement(self.spec.mesh, self.spec.slices, self._mesh, self.program.functions.device_state_shapes)
            show_placement(placed, self.run.placement)

    def _begin(self) -> Outcome:
        if (shapes := self.program.functions.frozen_shapes) is not None:
            assert self.initial_weights, "the specification refuses adapters without weights"
            with self._reading(self.initial_weights):
                self.program.frozen = self.initial_weights.frozen(shapes, self.processes)
        began = time.monotonic()
        self._stored_step = max(self.checkpoints.steps(), default=0)
        if self._stored_step or self._local:
            self.program.prepare_fingerprints()
        state, earlier = self._local.restore(self._stored_step, self.run) if self._local else (None, {})
        source = "storage" if state is None else "memory"
        if state is None and (state := self._restore()) is None:
            self._state = self._initial()
            return "new"
        self._state = state
        position = Position.of(state)
        if source == "storage":
            self._stored_step = position.step
        self.journal.record(EventName.RESTORE, **asdict(position), seconds=time.monotonic() - began, source=source)
        if self.processes.leads:
            if source == "storage":
                record = read_record(self.run.checkpoints / str(position.step))
                add_unstored(self.run.steps, record.attempt, record.steps)
                earlier = record.manifest
            if change := settings_change(earlier, self.run.manifest, position.step, state.optimizer):
                self.journal.announce(change)
        return "resumed" if position.step < self.schedule.steps else "already complete"

    def _restore(self, before: float = math.inf) -> TrainState | None:
        shapes, take = self.program.functions.state_shapes, self.program.fingerprints
        return self.checkpoints.restore(shapes, take, self.journal.announce, before)

    def _initial(self) -> TrainState:
        fresh = self.program.initial()
        if self.initial_weights is None or self.program.frozen is not None:
            return fresh
        with self._reading(self.initial_weights):
            return self.initial_weights.put_into(fresh, self.program.fingerprints, self.processes)

    @contextmanager
    def _reading(self, weights: InitialWeights) -> Generator[None]:
        began = time.monotonic()
        yield
        self.journal.record(EventName.INITIAL_WEIGHTS, folder=str(weights.folder), seconds=time.monotonic() - began)

    def _advance(self) -> None:
        """Give the devices the next step, then finish the previous one."""
        before = self._position
        done = before.step + 1
        self.processes.deadline.expect(f"step {done}", self.schedule.step_timeout_minutes)
        self.profiler.before(done)
        batch = self.batches.training(before.batch)
        self._state, result = self.program.step(self._state, batch)
        begun = self.journal.begin_step(before, result)
        self._finish_step()
        self._dispatched, self._position = begun, before.next

    def _follow_step(self) -> None:
        """Do what needs the state after the newest step. If nothing does, its result is read later."""
        step = self._position.step
        due = [each for each in self._after if each.needs_state and each.every(step)]
        if not due:
            return
        for each in due:
            if each.begin:
                each.begin()
        self._finish_step()
        for each in due:
            each.run(step)
            if self._position.step != step:
                return  # It went back.

    def _finish_step(self) -> None:
        """Wait for the current step, if there is one, record its result, and do what needs only that."""
        if self._dispatched is None:
            return
        finished, self._dispatched = self._dispatched, None
        step = finished.number
        self.processes.deadline.expect(f"step {step}", self.schedule.step_timeout_minutes)
        self.journal.end_step(finished)
        if self._has_diverged:
            return
        for each in self._after:
            if not each.needs_state and each.every(step):
                each.run(step)

    def _go_back_if_diverged(self, _: int) -> None:
        if self._has_diverged:
            self._go_back()

    @property
    def _has_diverged(self) -> bool:
        return self.journal.metrics.skipped_in_a_row > self.schedule.max_skipped_steps

    def _save_is_due(self, step: int) -> bool:
        """Return whether to save after `step`, or after an earlier step that was skipped."""
        falls = self._ends(step) or step % self.schedule.save_every_steps == 0
        self._save_waits |= falls or self._timer.is_up(self._position.batch)
        return self._save_waits

    def _save_unless_skipped(self, step: int) -> None:
        # A save that falls on skipped steps waits for their end: its weights may be the cause, and it would replace a
        # checkpoint that a rollback can use.
        if self._ends(step) or not self.journal.metrics.skipped_in_a_row:
            self._save()

    def _go_back(self) -> None:
        """Return to the state of an earlier step, with the same next batch as now.

        Skipped steps change no weights. A checkpoint from one of them, or from the step before them, has the weights
        with which all these batches failed, so the state is from before that step.

        Raises:
            Diverged: no rollbacks are left, or there is no such checkpoint.
            NoCheckpoint: none of these checkpoints can be used.
        """
        began, skipped, position = time.monotonic(), self.journal.metrics.skipped_in_a_row, self._position
        # The old state is deleted first, because the chips cannot hold two.
        del self._state
        self.processes.deadline.expect("the rollback", self.schedule.prepare_minutes)
        self._announce_saved(wait=True)
        if self._local:
            self._local.clear()
        fault = f"step {position.step}: the loss or gradient of {skipped} steps in a row was not finite or too large"
        advice = (
            "set a lower job.optimizer.learning_rate with job.allow_changes: [optimizer.learning_rate], or check the"
            " data of these steps"
        )
        done, most, before = self._rollbacks, self.schedule.max_rollbacks, position.step - skipped
        if done == most:
            raise Diverged(f"{fault}, after {done} of at most {most} rollbacks; {advice}")
        state = self._restore(before)
        if state is None:
            raise Diverged(f"{fault}, and there is no checkpoint from before step {before} to go back to; {advice}")
        self._rollbacks += 1
        found = Position.of(state)
        self.journal.announce(RolledBack(done + 1, most, position.step, found.step, found.batch, position.batch - 1))
        self.journal.metrics.skipped_in_a_row = 0
        self._state = state = at_batch(state, position.batch)
        self._position = position = Position.of(state)
        self._restartable_step = self._stored_step = position.step
        self._save_waits = False
        self._timer.restart(position.batch)
        self.journal.record(EventName.RESTORE, **asdict(position), seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _evaluate(self, step: int) -> float:
        sums: list[tuple[jax.Array, jax.Array]] = []
        for number in range(self.schedule.evaluation_batches):
            # The first evaluation of an attempt compiles. Later, a batch takes less time than a step.
            minutes = self.schedule.step_timeout_minutes if self._has_evaluated else self.schedule.prepare_minutes
            self.processes.deadline.expect(f"evaluation at step {step}", minutes)
            sums.append(self.program.evaluate(self._state.parameters, self.batches.held_out(number)))
            # Only two batches are in flight, so that each has its own deadline.
            jax.block_until_ready(sums[-2:-1])
        tokens = sum(float(tokens) for _, tokens in sums)
        loss = sum(float(loss) for loss, _ in sums) / tokens if tokens else math.nan
        self._has_evaluated = True
        self.journal.trackers.held_out(step, loss)
        self.journal.announce(Evaluation(step, loss))
        self.journal.restart_clock()
        return loss

    def _save(self) -> None:
        began, step = time.monotonic(), self._position.step
        self._timer.restart(self._position.batch)
        self._save_waits = False
        # A save waits for the previous one, so that one is announced now. Otherwise, saves in quick succession would
        # all be announced at the end.
        self._announce_saved(wait=True)
        agreed = self.replicas.require_equal(step, self.program.fingerprints(self._state))
        record = Record(agreed, self.run.manifest, self.run.start, tuple(self.journal.metrics.unstored))
        self.checkpoints.save(step, self._state, record)
        self._restartable_step = step
        self.journal.record(EventName.SAVE, step=step, blocking_seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _compare_slices(self, step: int) -> None:
        if step == self._restartable_step:
            return  # Its save has compared them.
        began = time.monotonic()
        self.replicas.require_equal(step, self.program.fingerprints(self._state))
        self.journal.record(EventName.SLICES_AGREE, step=step, seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _leave_on_sigterm(self) -> None:
        position = self._position
        if not self.processes.should_stop():
            return
        self._finish_step()
        if position.step != self._restartable_step:
            self._save()
        self._announce_saved(wait=True)
        raise Preempted(
            f"SIGTERM: stopped after step {position.step} with its state saved; the next attempt continues from there"
        )

    def _announce_saved(self, wait: bool) -> None:
        for step in self.checkpoints.finished(wait):
            self._stored_step = step
            self.journal.announce(CheckpointSaved(step, str(self.run.checkpoints)))

"""Trains a run from its newest checkpoint to its last step.

Program, data, run and checkpoints come first, then step, report, evaluate and save. The host gives the devices a step
before it reads the result of the previous one, so that they do not wait for the host. If the state of a step is saved,
evaluated or compared, or the step may be the last before a rollback, its result is read before the next step begins.
"""

import math
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import jax

from multislice_run.ledger import Ledger, add_unstored
from multislice_run.live_metrics import LiveMetrics
from multislice_run.start import Start
from workloads.progress import (
    CheckpointSaved,
    Evaluation,
    LocalCheckpointWritten,
    Outcome,
    RestoredLocally,
    RolledBack,
    RunStarted,
    RunSummary,
)
from workloads.spec import JobSpec
from workloads.training.attention_trial import settle
from workloads.training.checkpoint import Checkpoints, SaveTimer, read_record
from workloads.training.data import Batches, require_same_rows
from workloads.training.failures import Diverged, Preempted, TrainingStopped
from workloads.training.fingerprint import Fingerprints, Replicas
from workloads.training.initial_weights import InitialWeights
from workloads.training.journal import Journal, StepUnderWay
from workloads.training.local_checkpoints import LocalCheckpoints, local_folder
from workloads.training.memory import fitting
from workloads.training.mesh import build_mesh, placement, show_placement
from workloads.training.parameter_folder import read_about
from workloads.training.profile import StepProfiler
from workloads.training.resumption import Position, at_batch, settings_change
from workloads.training.rows import cache_folder, load_rows
from workloads.training.runs import manifest, open_run
from workloads.training.runtime import Processes
from workloads.training.step import CompiledProgram, TrainState, compiler_options
from workloads.training.step_metrics import StepMetrics
from workloads.training.trackers import trackers_of


def train(spec: JobSpec, start: Start, processes: Processes, live: LiveMetrics) -> None:
    """Train `spec` from the run's newest checkpoint to its last step. `live` gets the metrics.

    Raises:
        TrainingStopped: a stop with a known cause.
    """
    training = Training(spec, start, processes, live)
    fits = fitting(spec, training.program.held_shapes)
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

    def __init__(self, spec: JobSpec, start: Start, processes: Processes, live: LiveMetrics):
        self.spec, self.schedule, self.processes = spec, spec.training, processes
        self._mesh = build_mesh(spec.mesh, spec.slices, jax.devices())
        # The executor is not a context manager, because an attempt that fails early must not wait for the compiler.
        compiler = ThreadPoolExecutor(max_workers=1, thread_name_prefix="compile")
        self._attention = settle(spec, self._mesh, compiler_options(spec, self._mesh), processes)
        processes.deadline.expect("data, compilation and restore", self.schedule.prepare_minutes)
        self.program = program = CompiledProgram(self._attention.made_in(spec), self._mesh, compiler)
        length, marked = self.schedule.sequence_length, self.schedule.reads_marks
        rows = load_rows(spec.data, spec.model.vocab_size, length, cache_folder(), marked)
        require_same_rows(rows, processes)
        self.batches = Batches(rows, self.schedule, program.batch_sharding)
        self.initial_weights = InitialWeights.of(spec)
        """Weights that a new run begins with, or that its adapters are for. `None` draws weights from the seed."""
        frozen = read_about(self.initial_weights.folder).digest if self.schedule.lora and self.initial_weights else None
        kernel, options = self._attention.kernel, program.compiler_options
        described = manifest(spec, self.batches.record, start.image, options, kernel, frozen)
        self.run = run = open_run(spec, start.run_id, described, processes)
        ledger = Ledger(run.ledger / f"{run.start}-{processes.index}.jsonl")
        self.checkpoints = Checkpoints(run.checkpoints, self.schedule, processes)
        self._local = None
        if self.schedule.local_save_every_steps:
            self._local = LocalCheckpoints(local_folder(), run, program.state_shapes, processes)
        self.profiler = StepProfiler(self.schedule.profile_steps, run.folder, run.start, processes)
        metrics, trackers = StepMetrics(spec, run, processes), trackers_of(spec, run, processes)
        self.journal = Journal(self.schedule, processes, ledger, metrics, live, trackers)
        self.replicas = Replicas(self._mesh.devices, spec.slices)
        self._save_is_due = self._has_evaluated = False
        self._local_save_seconds = 0.0
        self._told: set[bool] = set()
        """Whether a local save that failed was reported, and whether a complete one was."""
        self._stored_step = 0
        """Step of the newest checkpoint in storage; 0 without one."""
        self._rollbacks = 0
        self._under_way: StepUnderWay | None = None
        """The newest step until its result is read."""

    def run_to_end(self, start: Start) -> None:
        """Train the remaining steps, then evaluate.

        Raises:
            Diverged: too many steps in a row were skipped, and no rollback is left.
            Preempted: SIGTERM. The state is saved.
            ReplicasDiffer: a save or comparison found that a device computed wrongly. Its state is not saved.
        """
        self._announce_start(start)
        state, outcome = self._begin()
        self.journal.record("compile", seconds=self.program.prepare(), **self.program.choices)
        self.journal.restart_clock()
        position, last = Position.of(state), self.schedule.steps
        self.journal.announce(RunStarted(self.run.id, outcome, position.step, last))
        # The newest step from which a restart on other nodes can continue.
        self._safe_step = self._stored_step
        self._timer = SaveTimer(self.schedule.save_every_minutes * 60, self.processes, position.batch)
        while position.step < last:
            self._leave_on_sigterm(position, state)
            state = self._advance(position, state)
            # The first save needs them. They come no earlier, so that the first step of a new run does not wait.
            self.program.prepare_fingerprints()
            position = position.next
            self._save_is_due |= self._save_falls_on(position)
            if not self._needs_result(position):
                continue
            # It is before the result, so that a step that is reported is not lost with the one before it.
            found = self._begin_local_save(position, state)
            self._finish_step()
            if self._has_diverged:
                # The old state is deleted first, because the chips cannot hold two.
                del state
                state, position = self._go_back(position)
            else:
                self._follow_schedule(position, state, found)
        evaluation = self._evaluate(last, state)
        self._announce_saved(wait=True)
        if self._local:
            self._local.clear()
        self.journal.announce(RunSummary(self.run.id, last, evaluation, time.time() - start.began))

    def _announce_start(self, start: Start) -> None:
        self.journal.record_start(start, self.spec)
        for line in self._attention.lines:
            self.journal.announce(line)
        if self.processes.leads:
            placed = placement(self.spec.mesh, self.spec.slices, self._mesh, self.program.held_shapes)
            show_placement(placed, self.run.placement)

    def _begin(self) -> tuple[TrainState, Outcome]:
        if self.program.frozen_shapes is not None:
            assert self.initial_weights, "the specification refuses adapters without weights"
            with self._reading(self.initial_weights):
                self.program.frozen = self.initial_weights.frozen(self.program.frozen_shapes, self.processes)
        began = time.monotonic()
        self._stored_step = max(self.checkpoints.steps(), default=0)
        if self._stored_step or self._local:
            self.program.prepare_fingerprints()
        state, earlier = self._restore_locally()
        source = "storage" if state is None else "memory"
        if state is None and (state := self._restore()) is None:
            return self._initial(), "new"
        position = Position.of(state)
        if source == "storage":
            self._stored_step = position.step
        self.journal.record("restore", **asdict(position), seconds=time.monotonic() - began, source=source)
        if self.processes.leads:
            earlier = earlier or read_record(self.run.checkpoints / str(position.step)).manifest
            if change := settings_change(earlier, self.run, state):
                self.journal.announce(change)
        return state, "resumed" if position.step < self.schedule.steps else "already complete"

    def _restore_locally(self) -> tuple[TrainState | None, dict[str, Any]]:
        """Return the newest state in the memory of the nodes, and the manifest of the attempt that saved it."""
        if self._local is None:
            return None, {}
        saved = self._stored_step
        found = self._local.restore(saved, self.program.fingerprints, self.journal.announce)
        if found is None:
            return None, {}
        step = int(found.state.step)
        if self.processes.leads:
            add_unstored(self.run.steps, found.held.attempt, found.steps)
        self.journal.announce(RestoredLocally(step, found.hosts, self.processes.count, saved))
        return found.state, found.record.manifest

    def _restore(self, before: float = math.inf) -> TrainState | None:
        shapes, take = self.program.state_shapes, self.program.fingerprints
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
        self.journal.record("initial_weights", folder=str(weights.folder), seconds=time.monotonic() - began)

    def _advance(self, position: Position, state: TrainState) -> TrainState:
        """Give the devices the step after `position`, then finish the previous one."""
        done = position.step + 1
        self.processes.deadline.expect(f"step {done}", self.schedule.step_timeout_minutes)
        self.profiler.before(done)
        batch = self.batches.training(position.batch)
        state, result = self.program.step(state, batch)
        begun = self.journal.begin_step(position, result)
        self._finish_step()
        self._under_way = begun
        return state

    def _needs_result(self, position: Position) -> bool:
        """Return whether the step to `position` must be finished before the next one begins.

        This is so if its state has another use, or if the run may have diverged there.
        """
        step = position.step
        return (
            self._save_is_due
            or self._local_save_is_due(step)
            or self._slices_are_due(step)
            or self._evaluation_is_due(step)
            or self.journal.metrics.skipped_in_a_row >= self.schedule.max_skipped_steps
            or self.profiler.cut_after(step)
        )

    def _finish_step(self) -> None:
        """Wait for the current step, if there is one, and record its result."""
        if self._under_way is None:
            return
        finished, self._under_way = self._under_way, None
        step = finished.number
        self.processes.deadline.expect(f"step {step}", self.schedule.step_timeout_minutes)
        self.journal.end_step(finished)
        self.profiler.after(step)
        if self._has_diverged:
            return
        if step % self.schedule.compare_hosts_every_steps == 0 or step == self.schedule.steps:
            self.journal.compare_hosts(step)
        self._announce_saved(wait=False)

    @property
    def _has_diverged(self) -> bool:
        return self.journal.metrics.skipped_in_a_row > self.schedule.max_skipped_steps

    def _follow_schedule(self, position: Position, state: TrainState, found: list[Fingerprints] | None) -> None:
        """Save, compare slices and evaluate if due at `position`, whose step is finished. `found` are the fingerprints
        for a local save, if one is due."""
        step = position.step
        # A save that falls on skipped steps waits for their end: its weights may be the cause, and it would replace a
        # checkpoint that a rollback can use.
        ends = step == self.schedule.steps
        if self._save_is_due and (ends or not self.journal.metrics.skipped_in_a_row):
            self._save(position, state)
        elif self._slices_are_due(step):
            self._compare_slices(step, state)
        if found and not self.journal.metrics.skipped_in_a_row:
            self._save_locally(step, state, found)
        if self._evaluation_is_due(step):
            self._evaluate(step, state)

    def _save_falls_on(self, position: Position) -> bool:
        ends = position.step == self.schedule.steps
        return ends or position.step % self.schedule.save_every_steps == 0 or self._timer.is_up(position.batch)

    def _slices_are_due(self, step: int) -> bool:
        return self.replicas.several and step % self.schedule.compare_slices_every_steps == 0

    def _evaluation_is_due(self, step: int) -> bool:
        """Return whether to evaluate after `step`. The evaluation after the last step is separate."""
        return step % self.schedule.evaluate_every_steps == 0 and step < self.schedule.steps

    def _go_back(self, position: Position) -> tuple[TrainState, Position]:
        """Return the state of an earlier step, with the batch at `position` as its next one.

        Skipped steps change no weights. A checkpoint from one of them, or from the step before them, has the weights
        with which all these batches failed, so the returned state is from before that step.

        Raises:
            Diverged: no rollbacks are left, or there is no such checkpoint.
            NoCheckpoint: none of these checkpoints can be used.
        """
        began, skipped = time.monotonic(), self.journal.metrics.skipped_in_a_row
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
        state = at_batch(state, position.batch)
        position = Position.of(state)
        self._safe_step = self._stored_step = position.step
        self._save_is_due = False
        self._timer.restart(position.batch)
        self.journal.record("restore", **asdict(position), seconds=time.monotonic() - began)
        self.journal.restart_clock()
        return state, position

    def _evaluate(self, step: int, state: TrainState) -> float:
        sums: list[tuple[jax.Array, jax.Array]] = []
        for number in range(self.schedule.evaluation_batches):
            # The first evaluation of an attempt compiles. Later, a batch takes less time than a step.
            minutes = self.schedule.step_timeout_minutes if self._has_evaluated else self.schedule.prepare_minutes
            self.processes.deadline.expect(f"evaluation at step {step}", minutes)
            sums.append(self.program.evaluate(state.parameters, self.batches.held_out(number)))
            # Only two batches are in flight, so that each has its own deadline.
            jax.block_until_ready(sums[-2:-1])
        tokens = sum(float(tokens) for _, tokens in sums)
        loss = sum(float(loss) for loss, _ in sums) / tokens if tokens else math.nan
        self._has_evaluated = True
        self.journal.trackers.held_out(step, loss)
        self.journal.announce(Evaluation(step, loss))
        self.journal.restart_clock()
        return loss

    def _save(self, position: Position, state: TrainState) -> None:
        began, step = time.monotonic(), position.step
        self._timer.restart(position.batch)
        self._save_is_due = False
        # A save waits for the previous one, so that one is announced now. Otherwise, saves in quick succession would
        # all be announced at the end.
        self._announce_saved(wait=True)
        agreed = self.replicas.require_equal(step, self.program.fingerprints(state))
        self.checkpoints.save(step, state, agreed, self.run.manifest)
        self._safe_step = step
        self.journal.record("save", step=step, blocking_seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _local_save_is_due(self, step: int) -> bool:
        """Return whether to save to the memory of the nodes after `step`. After the last step, nothing needs it."""
        every = self.schedule.local_save_every_steps
        return every is not None and step % every == 0 and step < self.schedule.steps

    def _begin_local_save(self, position: Position, state: TrainState) -> list[Fingerprints] | None:
        """If a local save is due, wait until all hosts have written the last one, and return the fingerprints."""
        if self._local is None or not self._local_save_is_due(position.step):
            return None
        found = self._local.begin(state, self.program.fingerprints)
        if (written := self._local.written()) and bool(written.fault) not in self._told:
            self._told.add(bool(written.fault))
            if written.fault:
                self.journal.warn(f"{self.processes.host}: no local checkpoint of step {written.step}: {written.fault}")
            else:
                times = (1000 * self._local_save_seconds, 1000 * written.seconds)
                self.journal.announce(LocalCheckpointWritten(written.step, written.bytes / 2**20, *times))
        return found

    def _save_locally(self, step: int, state: TrainState, found: list[Fingerprints]) -> None:
        assert self._local
        agreed, lines = self.replicas.require_equal(step, found), self.journal.metrics.unstored
        self._local.save(step, state, agreed, self._stored_step, lines)
        self._local_save_seconds = self.journal.end_local_save()

    def _compare_slices(self, step: int, state: TrainState) -> None:
        began = time.monotonic()
        self.replicas.require_equal(step, self.program.fingerprints(state))
        self.journal.record("slices_agree", step=step, seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _leave_on_sigterm(self, position: Position, state: TrainState) -> None:
        if not self.processes.should_stop():
            return
        self._finish_step()
        if position.step != self._safe_step:
            self._save(position, state)
        self._announce_saved(wait=True)
        raise Preempted(
            f"SIGTERM: stopped after step {position.step} with its state saved; the next attempt continues from there"
        )

    def _announce_saved(self, wait: bool) -> None:
        for step in self.checkpoints.finished(wait):
            self._stored_step = step
            self.journal.announce(CheckpointSaved(step, str(self.run.checkpoints)))

"""One slice in its group, apart from its steps: entering and leading, views, states and saves.

The leading slice saves and reports. How a slice that joins gets its state is in `state_transfer`.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict
from typing import Any, ClassVar

import numpy as np
from etils import epath

from multislice_run.ledger import Ledger
from multislice_run.live_metrics import LiveMetrics
from multislice_run.start import Start
from workloads.group.control import Now, Outside, ViewChanged
from workloads.group.exchange import Exchange, Traffic
from workloads.group.frames import Aborted
from workloads.group.protocol import Value
from workloads.group.view import STORAGE, View
from workloads.progress import CheckpointSaved, Outcome, RunStarted, SlicesChanged
from workloads.spec import JobSpec
from workloads.training.checkpoint import CheckpointReader, Checkpoints
from workloads.training.failures import (
    HostMissing,
    Preempted,
    SliceLost,
    TrainingStopped,
)
from workloads.training.fingerprint import Fingerprints
from workloads.training.group_host import GroupHost, Prepared
from workloads.training.journal import Journal
from workloads.training.parameter_folder import read_about
from workloads.training.resumption import Position
from workloads.training.runs import join_run, manifest, offer_run, open_run
from workloads.training.runtime import Processes
from workloads.training.slice_program import SliceProgram
from workloads.training.state_transfer import StateDamaged, StateTransfer
from workloads.training.step import TrainState
from workloads.training.step_metrics import StepMetrics
from workloads.training.trackers import trackers_of
from workloads.training.writer import Writer

CUT_SECONDS = 2.0
"""Time to wait for the next view after a connection for data ended. If there is none, only the connection is gone, and
the leader is asked to go on without the other slice."""

FILES_PER_PROCESS = 1000
"""Numbers of files of step metrics that each process may use, so that no two write the same file."""


class GroupSlice(ABC):
    """This slice in the group. Subclasses say what a step is."""

    program_type: ClassVar[type[SliceProgram]]

    def __init__(
        self,
        spec: JobSpec,
        start: Start,
        host: GroupHost,
        prepared: Prepared,
        processes: Processes,
        live: LiveMetrics,
        lost: Callable[[TrainingStopped], None],
    ):
        self.spec, self.training, self.start, self.processes = spec, spec.training, start, processes
        self.host, self.control, self.me = host, host.control, host.me
        self.prepared, self.program = prepared, prepared.program
        self._live, self._lost = live, lost
        self._stack = ExitStack()
        self._writer: Writer | None = None
        self._checkpoints: Checkpoints | None = None
        self._leads = False
        self._terms = 0
        """How often this slice came to lead."""
        self._now: Now | None = None
        self._exchange: Exchange | None = None
        self._sums = 0
        """Sums in the current view."""
        self._reported: tuple[View, int] | None = None
        """The view that was reported last, and the step after which it began."""
        self._transfer = StateTransfer(prepared, processes, host.register.folder, host.control.changed)
        self._agreed: Fingerprints = {}
        """Fingerprints on which the slices agreed at the last comparison."""
        self._saved_step = -1
        """Newest step with a checkpoint, complete or being written, while this slice leads."""

    def run_to_end(self) -> None:
        """Train to the last step."""
        try:
            with self._stack:
                self._enter()
                while self.position.step < self.training.steps:
                    self._attempt(self._step)
                if self._now:
                    self._attempt(self._finish)
        except BaseException as error:
            self._close(error)
            raise
        self._close(None)

    @abstractmethod
    def _step(self) -> None:
        """Do the next step with the others."""

    @abstractmethod
    def _forget_step(self) -> None:
        """Drop what is computed of a step, because another state follows."""

    @abstractmethod
    def _finish(self) -> None:
        """End the run with the others after its last step."""

    def _attempt(self, work: Callable[[], None]) -> None:
        """Run `work`. If the group goes on without this slice, join it again and get the state of another slice."""
        again = self._try(work)
        while again:
            again = self._try(self._join_again)

    def _try(self, work: Callable[[], None]) -> bool:
        """Return whether this slice has to join the group again."""
        try:
            work()
        except StateDamaged:
            return True
        except Outside:
            # Its hosts may have left the group at different points of a step, so that they cannot join it together.
            if self._hosts > 1:
                raise SliceLost(f"the group goes on without slice {self.me.slice}") from None
            self.journal.warn(f"slice {self.me.slice} was left out and joins again")
            return True
        return False

    def _join_again(self) -> None:
        self._close_exchange()
        self._now = None
        self._forget_step()
        self._stop_leading(None)
        if self.control.enter(60 * self.training.start_minutes):
            raise SliceLost("no other slice is left, so this one continues from the last checkpoint")
        self._look()

    def _close(self, error: BaseException | None) -> None:
        self._close_exchange()
        known = error is None or (isinstance(error, TrainingStopped) and error.agreed)
        if self._checkpoints and known:
            self._checkpoints.close()
        self._stop_leading(error)

    @property
    def _hosts(self) -> int:
        return self.spec.slices.hosts

    # Entering

    def _enter(self) -> None:
        """Find the group, and get a state."""
        minutes = self.training.start_minutes + self.training.prepare_minutes
        self.processes.deadline.expect("the group of slices", minutes)
        founds = self.control.enter(60 * minutes)
        if founds:
            self._take_right_to_write()
            self.run = open_run(self.spec, self.start.run_id, self._manifest(), self.processes)
            if self.processes.leads:
                offer_run(self.run, self.host.register.folder)
        else:
            self.control.now(60 * minutes)
            self.run = join_run(self.spec.storage, self.host.register.folder, self.processes)
        self._open_journal()
        outcome: Outcome = "resumed"
        if founds:
            self._open_checkpoints()
            whole, outcome = self._begin()
            self._take_over(whole, self._notes_at_begin)
            if outcome != "already complete":
                self.control.has_state()
        if outcome != "already complete":
            self._attempt(self._look)
        self.journal.announce(RunStarted(self.run.id, outcome, self.position.step, self.training.steps))
        self.journal.restart_clock()

    def _manifest(self) -> dict[str, Any]:
        weights = self.prepared.initial_weights
        frozen = read_about(weights.folder).digest if self.training.lora and weights else None
        record, kernel = self.prepared.batches.record, self.prepared.attention.kernel
        return manifest(self.spec, record, self.start.image, self.program.compiler_options, kernel, frozen)

    def _open_journal(self) -> None:
        process = self.me.slice * self._hosts + self.me.worker
        # A slice that starts again must not overwrite what its earlier processes wrote.
        process += self.spec.slices.total_hosts * self.start.slice_restarts
        ledger = Ledger(self.run.ledger / f"{self.run.start}-{process}.jsonl")
        metrics = StepMetrics(self.spec, self.run, self.processes, FILES_PER_PROCESS * process)
        trackers = trackers_of(self.spec, self.run, self.processes)
        self.journal = Journal(self.training, self.processes, ledger, metrics, self._live, trackers)
        self._stack.enter_context(self.journal)
        self.journal.speaks = self._leads and self.processes.leads
        self.journal.record_start(self.start, self.spec, self.me.slice)
        self.journal.record("compile", seconds=self.prepared.compile_seconds, **self.program.choices)

    def _begin(self) -> tuple[TrainState, Outcome]:
        """Return the state of the newest checkpoint, or a new one."""
        assert self._checkpoints
        began = time.monotonic()
        shapes, take = self.program.whole_shapes, self.program.fingerprints
        state = self._checkpoints.restore(shapes, take, self.journal.announce)
        if state is None:
            fresh, weights = self.program.initial(), self.prepared.initial_weights
            if weights is None or self.program.frozen is not None:
                return fresh, "new"
            return weights.put_into(fresh, take, self.processes), "new"
        found = Position.of(state)
        self.journal.record("restore", **asdict(found), seconds=time.monotonic() - began)
        self._saved_step = found.step
        return state, "resumed" if found.step < self.training.steps else "already complete"

    # Leading

    def _take_right_to_write(self) -> None:
        folder, start = epath.Path(self.spec.storage.path), self.start
        self._leads = True
        self._writer = Writer(folder, start.run_id, start.restart_attempt, self.processes, self._lost, self._terms)
        self._terms += 1
        self._writer.__enter__()

    def _open_checkpoints(self) -> None:
        if self._checkpoints is None:
            self._checkpoints = Checkpoints(self.run.checkpoints, self.training, self.processes)
        else:
            self._checkpoints.reload()
        # The slice that led before may have saved this very step, or have been lost before its save was complete.
        self._saved_step = max(self._checkpoints.steps(), default=-1)

    def _stop_leading(self, error: BaseException | None) -> None:
        self._leads = False
        if self._writer:
            self._writer.__exit__(type(error), error, None)
            self._writer = None

    # Views

    def _look(self) -> None:
        """Work in the newest view that includes this slice. Wait while it has too few slices."""
        while True:
            now = self.control.now(self.processes.deadline.seconds_left())
            if self._now is None or now.view.number != self._now.view.number:
                try:
                    self._begin_view(now)
                except Aborted as aborted:
                    self._wait_for_view(aborted)
                    continue
            if len(now.view.slices) >= self.spec.quorum:
                return
            self._wait_for_more(now)

    def _begin_view(self, now: Now) -> None:
        self._close_exchange()
        self._now, self._sums = now, 0
        self._exchange = Exchange(self.host.links, now.peers, now.view.number)
        leads = now.view.led_by == self.me.slice
        if leads and not self._leads:
            self._take_right_to_write()
            self._open_checkpoints()
        elif self._leads and not leads:
            self._stop_leading(None)
        if self._reported and self._reported[0].led_by != now.view.led_by:
            self.journal.metrics.write_kept()
        self.journal.speaks = leads and self.processes.leads
        self._live.lead(self.journal.speaks)
        stored = STORAGE in now.view.donors.values()
        if stored:
            self.processes.deadline.expect("the state through storage", self.training.prepare_minutes)
        if now.needs_state:
            self._take_state(now.view, now.view.donors[self.me.slice])
        self._note_change(now)
        for receiver, donor in sorted(now.view.donors.items()):
            if donor == self.me.slice:
                self._give_state(receiver)
        if stored and leads:
            self._store_state(now.view)
        self.journal.restart_clock()

    def _note_change(self, now: Now) -> None:
        step, view = self.position.step, now.view
        earlier, begun = self._reported or (None, step)
        self._reported = view, step
        change, listed = view.change_since(earlier, trained=step > begun), " ".join(map(str, view.slices))
        self.journal.announce(SlicesChanged(step, len(view.slices), self.spec.slices.count, listed, change))
        self._live.change_slices(view.slices, view.donors)

    def _wait_for_more(self, now: Now) -> None:
        """Wait for lost slices with the state saved.

        Raises:
            Preempted: they did not come back in time.
        """
        if self._leads:
            self._save_now()
        minutes, quorum = self.training.start_minutes, self.spec.quorum
        present = len(now.view.slices)
        self.journal.warn(f"{present} of at least {quorum} slices are there; waiting {minutes:g} minutes for more")
        self.processes.deadline.expect("more slices", minutes + 1)
        if not self.control.wait_for_newer(now.view.number, 60 * minutes):
            raise Preempted(
                f"only {present} of at least {quorum} slices (slices.min_count) were there for {minutes:g} minutes; the"
                f" state of step {self.position.step} is saved"
            )

    def _wait_for_view(self, aborted: Aborted) -> None:
        """Wait for the view that comes after the exchange with another slice has ended."""
        assert self._now
        self._close_exchange()
        number = self._now.view.number
        self.control.miss(aborted.lost)
        if not self.control.wait_for_newer(number, CUT_SECONDS):
            self.control.report_cut(aborted.lost)
            if not self.control.wait_for_newer(number, self.processes.deadline.seconds_left()):
                raise HostMissing(f"no view came after {aborted}; see the logs of the other slices")

    def _close_exchange(self) -> None:
        if self._exchange:
            self._exchange.close()
            self._exchange = None

    def _round(self, work: Callable[[], Value], holds: bool) -> Value:
        """Do `work` with the slices of the newest view, and return the leader's decision when all have done it."""
        while True:
            try:
                self._look()
                assert self._now
                value = work()
                return self.control.finish(self._now, value, holds, self.processes.deadline.seconds_left())
            except ViewChanged:
                continue
            except Aborted as aborted:
                self._wait_for_view(aborted)

    def _sum(self, own: Mapping[int, np.ndarray], parts: Mapping[int, int], out: np.ndarray, wire: np.dtype) -> Traffic:
        assert self._exchange, "a view has an exchange"
        self._sums += 1
        return self._exchange.sum(self._sums, own, parts, wire, out, self.control.changed)

    # States

    @property
    def _whole(self) -> TrainState:
        """Everything that slices give each other and that a checkpoint has."""
        return self.state

    @property
    def _notes(self) -> np.ndarray:
        """Whole numbers that a slice needs too to join this one, as int64."""
        return np.empty(0, np.int64)

    @property
    def _notes_at_begin(self) -> np.ndarray:
        """Notes with which the group begins."""
        return np.empty(0, np.int64)

    def _take_over(self, whole: TrainState, notes: np.ndarray) -> None:
        """Continue from the state of a checkpoint or of another slice."""
        self.state = whole
        self.position = Position.of(whole)

    def _give_state(self, receiver: int) -> None:
        assert self._exchange, "a view has an exchange"
        began, step = time.monotonic(), self.position.step
        self._transfer.give(self._exchange, receiver, self._whole, self._notes, step)
        self.journal.record("gave_state", step=step, to=receiver, seconds=time.monotonic() - began)

    def _take_state(self, view: View, donor: int) -> None:
        """Take over the state of `donor`.

        Raises:
            StateDamaged: it arrived damaged. The next one comes from elsewhere.
        """
        assert self._exchange, "a view has an exchange"
        began, giver = time.monotonic(), view.led_by if donor == STORAGE else donor
        try:
            if donor == STORAGE:
                with closing(CheckpointReader(self.run.checkpoints, self.training, self.processes)) as reader:
                    received = self._transfer.restore(view, reader)
            else:
                received = self._transfer.receive(self._exchange, donor, view, self._notes_at_begin)
        except StateDamaged as damaged:
            self.journal.warn(f"the state of slice {donor} arrived damaged ({damaged}); it is asked for again")
            self.control.refuse_state(view)
            raise
        self._take_over(*received)
        self.control.has_state()
        seconds, stored = time.monotonic() - began, donor == STORAGE
        self.journal.record("restore", **asdict(self.position), seconds=seconds, donor=giver, stored=stored)

    def _store_state(self, view: View) -> None:
        """Save the state for slices that get it intact from no other slice."""
        receivers = ", ".join(str(one) for one, donor in sorted(view.donors.items()) if donor == STORAGE)
        step = self.position.step
        self.journal.warn(
            f"the state arrived damaged at slice {receivers} from every other slice; it gets the checkpoint of step"
            f" {step}, and the others wait until it is written; check the network of its hosts"
        )
        self._announce_saved(wait=True)
        self._save_now()
        self._transfer.offer(view, step, self._notes)

    # Saving

    def _save_now(self) -> None:
        """Save the state between two steps and wait until it is written, unless this step has a checkpoint."""
        if self._saved_step == self.position.step:
            return
        self._agreed = self.prepared.fingerprints(self._whole, self.position.step)
        self._save()
        self._announce_saved(wait=True)

    def _save(self) -> None:
        assert self._checkpoints, "a slice that leads has opened the checkpoints"
        began, step = time.monotonic(), self.position.step
        self._announce_saved(wait=True)
        if step == self._saved_step:
            return
        self._checkpoints.save(step, self._whole, self._agreed, self.run.manifest)
        self._saved_step = step
        self.journal.record("save", step=step, blocking_seconds=time.monotonic() - began)
        self.journal.restart_clock()

    def _announce_saved(self, wait: bool) -> None:
        if self._checkpoints and self._leads:
            for step in self._checkpoints.finished(wait):
                self.journal.announce(CheckpointSaved(step, str(self.run.checkpoints)))

"""Saves the state to the memory of the pods between two steps, and reports what that costs."""

from typing import Any

from multislice_run.records.ledger import add_unstored
from workloads.progress import LocalCheckpointWritten, RestoredLocally
from workloads.training.fingerprint import Fingerprints, Replicas
from workloads.training.journal import Journal
from workloads.training.local_checkpoints import LocalCheckpoints
from workloads.training.runs import Run
from workloads.training.step import CompiledProgram, TrainState


class LocalSaves:
    """The local checkpoints of one attempt. Every process of the job has one and makes the same calls."""

    def __init__(self, checkpoints: LocalCheckpoints, program: CompiledProgram, replicas: Replicas, journal: Journal):
        self._checkpoints, self._program, self._replicas, self._journal = checkpoints, program, replicas, journal
        self._found: list[Fingerprints] = []
        """Fingerprints of the state that is saved next."""
        self._seconds = 0.0
        """Time of the last save in which the devices waited."""
        self._reported = set[bool]()
        """Whether a save that failed was reported, and whether a complete one was."""

    def restore(self, saved: int, run: Run) -> tuple[TrainState | None, dict[str, Any]]:
        """Return the newest state in the memory of the pods, and the manifest of the attempt that saved it. `saved` is
        the step of the newest checkpoint in storage."""
        found = self._checkpoints.restore(saved, self._program.fingerprints, self._journal.announce)
        if found is None:
            return None, {}
        processes = self._journal.processes
        if processes.leads:
            add_unstored(run.steps, found.age.attempt, found.steps)
        self._journal.announce(RestoredLocally(int(found.state.step), found.hosts, processes.count, saved))
        return found.state, found.record.manifest

    def begin(self, state: TrainState) -> None:
        """Wait until all hosts have written the last state, and take the fingerprints of this one.

        It is called before the result of the step is read, so that a step that is reported is not lost with the one
        before it.
        """
        self._found = self._checkpoints.begin(state, self._program.fingerprints)
        written = self._checkpoints.written()
        if written is None or bool(written.fault) in self._reported:
            return
        self._reported.add(bool(written.fault))
        if written.fault:
            host = self._journal.processes.host
            self._journal.warn(f"{host}: no local checkpoint of step {written.step}: {written.fault}")
        else:
            times = (1000 * self._seconds, 1000 * written.seconds)
            self._journal.announce(LocalCheckpointWritten(written.step, written.bytes / 2**20, *times))

    def save(self, step: int, state: TrainState) -> None:
        """Save the state after `begin`, unless its step was skipped: its weights may be the cause."""
        if self._journal.metrics.skipped_in_a_row:
            return
        agreed = self._replicas.require_equal(step, self._found)
        self._checkpoints.save(step, state, agreed, self._journal.metrics.unstored)
        self._seconds = self._journal.end_local_save()

    def clear(self) -> None:
        """Delete all states of the run."""
        self._checkpoints.clear()

"""Trains one slice together with the others of its group, each of which is a JAX world of its own.

In each step, the slices compute the parts of a batch, exchange the sums of their gradients, and finish the step only
when all hosts of the view hold the whole sum (`workloads.group.protocol`).
"""

import math
import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from multislice_run.live_metrics import LiveMetrics
from multislice_run.start import Start
from workloads.group.control import SliceBroken
from workloads.group.parts import deal, next_parts, parts_of
from workloads.group.protocol import Value
from workloads.group.view import HostId
from workloads.progress import Evaluation, RunSummary
from workloads.spec import JobSpec
from workloads.training.failures import (
    Diverged,
    Preempted,
    ReplicasDiffer,
    SliceLost,
    TrainingStopped,
)
from workloads.training.fingerprint import Fingerprints
from workloads.training.group_host import GroupHost, Prepared
from workloads.training.group_schedule import AfterStep
from workloads.training.group_slice import GroupSlice
from workloads.training.layout import Tree
from workloads.training.model import Summed
from workloads.training.resumption import Position
from workloads.training.runtime import Processes
from workloads.training.slice_program import Gradients, SliceProgram


def train_in_group(
    spec: JobSpec,
    start: Start,
    me: HostId,
    address: str,
    processes: Processes,
    live: LiveMetrics,
    lost: Callable[[TrainingStopped], None],
    member: "type[GroupMember]",
) -> None:
    """Train `spec` as slice `me.slice` of its group, from the state of another slice or the newest checkpoint.

    `address` is this host's IP address for other slices. `lost` is called from another thread when another submission
    has taken over the storage path. `member` is how the slice trains.

    Raises:
        TrainingStopped: a stop with a known cause.
    """
    prepared = Prepared(spec, processes, member.program_type)
    with GroupHost(spec, start, me, address, processes) as host, prepared.batches:
        try:
            member(spec, start, host, prepared, processes, live, lost).run_to_end()
        except SliceBroken as broken:
            raise SliceLost(f"slice {me.slice} cannot go on: {broken}") from broken
    processes.deadline.clear()


class GroupMember(GroupSlice):
    """A slice that sums its gradients with those of the others in each step."""

    program_type = SliceProgram

    def __init__(self, *given: Any):
        """It gets what `GroupSlice` gets."""
        super().__init__(*given)
        self._parts: dict[int, Gradients] = {}
        """Gradients of the current step that this slice has computed."""
        self._given = 0.0
        """Time by `time.monotonic()` when the devices got the first part of the current step."""
        self._dealt: dict[int, int] = {}
        """The slice that computes each part of the current step."""
        self._totals = np.empty(len(Summed._fields), np.float32)
        self._vector = np.empty(self.program.shards.size, np.float32)

    def _forget_step(self) -> None:
        self._parts.clear()

    def _step(self) -> None:
        step = self.position.step + 1
        self.processes.deadline.expect(f"step {step}", self.training.step_timeout_minutes)
        after = self._round(lambda: self._sum_gradients(step), holds=True)
        batch = self.position.batch + (len(self._dealt) if self._by_part else 1)
        self.state, result = self.program.update(self.state, self._totals, self._vector, batch)
        self._parts.clear()
        before, self.position = self.position, Position(step, batch)
        self.journal.end_step(self.journal.begin_step(before, result, self._given))
        self._follow(cast(AfterStep, after))

    @property
    def _by_part(self) -> bool:
        """Whether a step has only as many parts as slices are present, so that `position.batch` counts parts."""
        return self.training.lost_rows == "next-step"

    def _sum_gradients(self, step: int) -> Value:
        """Compute this slice's parts of the step, and sum all of them."""
        assert self._now
        present, count = self._now.view.slices, self.spec.slices.count
        batch = self.position.batch
        self._dealt = next_parts(batch, present) if self._by_part else deal(parts_of(batch, count), present, count)
        mine = [part for part, one in self._dealt.items() if one == self.me.slice]
        for part in mine:
            if part not in self._parts:
                rows = self.prepared.batches.training(part)
                if not self._parts:
                    self._given = time.monotonic()
                self._parts[part] = self.program.gradients(self.state, rows)
        own = {part: self._parts[part] for part in mine}
        float32 = np.dtype(np.float32)
        self._sum({part: each.sums for part, each in own.items()}, self._dealt, self._totals, float32)
        vectors = {part: each.vector for part, each in own.items()}
        self._sum(vectors, self._dealt, self._vector, self.program.shards.wire)
        return {"kind": "step", "since": step - 1, "step": step, "sigterm": self.processes.sigterm.is_set()}

    def _follow(self, after: AfterStep) -> None:
        """Do what the leader decided to do after the step."""
        step = self.position.step
        if self.journal.metrics.skipped_in_a_row > self.training.max_skipped_steps:
            raise Diverged(
                f"step {step}: the loss or gradient of {self.journal.metrics.skipped_in_a_row} steps in a row was not"
                " finite or too large; set a lower job.optimizer.learning_rate or check the data of these steps"
            )
        if after["compare"]:
            self._compare(after["evaluate"])
        ends = step == self.training.steps
        if after["save"] and (ends or after["stop"] or not self.journal.metrics.skipped_in_a_row):
            self.host.schedule.note_save()
            if self._leads:
                self._save()
        if after["evaluate"]:
            self._evaluate()
        self._announce_saved(wait=after["stop"])
        if after["stop"]:
            raise Preempted(f"SIGTERM: stopped after step {step} with its state saved")
        if self.me.slice in after["leave"]:
            raise Preempted(f"SIGTERM: slice {self.me.slice} left after step {step}; the others train on")

    def _compare(self, evaluates: bool) -> None:
        began, step = time.monotonic(), self.position.step
        mine = self._to_compare()
        compared = self._round(lambda: {"kind": "compare", "fingerprints": mine, "evaluates": evaluates}, holds=False)
        if self.me.slice in compared["wrong"]:
            raise ReplicasDiffer(
                f"step {step}: slice {self.me.slice} computed wrongly: {compared['what']}; nothing of it is saved"
            )
        self.journal.record("slices_agree", step=step, seconds=time.monotonic() - began)
        self._agreed = mine
        self.journal.restart_clock()

    def _to_compare(self) -> Fingerprints:
        """Return the fingerprints of everything that must be equal in all slices."""
        return self.prepared.fingerprints(self._whole, self.position.step)

    def _evaluate(self) -> float:
        """Return the held-out loss. Each slice evaluates its parts, and those of lost slices."""
        step, batches, count = self.position.step, self.training.evaluation_batches, self.spec.slices.count
        parameters = self._parameters_to_evaluate
        self.processes.deadline.expect(f"evaluation at step {step}", self.training.prepare_minutes)
        done: dict[int, np.ndarray] = {}
        total = np.empty(2 * batches, np.float32)

        def work() -> Value:
            assert self._now
            dealt = deal(range(count), self._now.view.slices, count)
            mine = [part for part, one in dealt.items() if one == self.me.slice]
            for part in mine:
                if part not in done:
                    done[part] = self._evaluated(part, parameters)
            self._sum({part: done[part] for part in mine}, dealt, total, np.dtype(np.float32))
            return {"kind": "evaluate"}

        self._round(work, holds=False)
        losses, tokens = total[::2].astype(np.float64).sum(), total[1::2].astype(np.float64).sum()
        loss = float(losses / tokens) if tokens else math.nan
        if self.journal.speaks:
            self.journal.trackers.held_out(step, loss)
        self.journal.announce(Evaluation(step, loss))
        self.journal.restart_clock()
        return loss

    @property
    def _parameters_to_evaluate(self) -> Tree:
        """Parameters that are equal in all slices."""
        return self.state.parameters

    def _evaluated(self, part: int, parameters: Tree) -> np.ndarray:
        """Return the summed loss and the number of tokens of this part of each evaluation batch."""
        count = self.spec.slices.count
        found: list[float] = []
        for number in range(self.training.evaluation_batches):
            rows = self.prepared.batches.held_out(parts_of(number, count)[part])
            found += [float(one) for one in self.program.evaluate(parameters, rows)]
        return np.array(found, np.float32)

    def _finish(self) -> None:
        """Evaluate, and wait until the state of the last step is saved by whoever leads."""
        evaluation = self._evaluate()

        def work() -> Value:
            if self._leads:
                self._save()
                self._announce_saved(wait=True)
            return {"kind": "end"}

        self._round(work, holds=False)
        steps = self.training.steps
        self.journal.announce(RunSummary(self.run.id, steps, evaluation, time.time() - self.start.began))

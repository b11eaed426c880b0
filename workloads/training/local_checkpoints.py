"""Keeps the newest states of a run in the memory of the hosts' pods, in a folder that outlives the process:

    <folder>/<attempt>-<step>/arrays    see `local_shards`
    <folder>/<attempt>-<step>/record    JSON: fingerprints and manifest as of a checkpoint, and lines of steps

The folder ends with its pod, and no other pod sees it, so all that is in it is from earlier attempts of the same job.
All hosts save at the same steps. The next attempt continues from the newest state of which each shard is in some pod.
Replicas hold the same shards, so a slice with new pods costs nothing if there are others. A pod keeps one complete
state while it writes the next. `begin` waits until all hosts have written the last one, so no host deletes a state
before all others have a later one.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from multislice_run.records.ledger import add_unstored
from workloads.progress import LocalCheckpointSkipped, LocalCheckpointWritten, RestoredLocally
from workloads.spec import LOCAL_CHECKPOINTS_VARIABLE
from workloads.training.checkpoint import Record
from workloads.training.failures import InvalidSpec, first_line, first_of
from workloads.training.fingerprint import Fingerprints, Replicas, Take, differences
from workloads.training.journal import Journal
from workloads.training.local_shards import Plan, Shards, plan
from workloads.training.restore import sent
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step import CompiledProgram, TrainState

ARRAYS, RECORD = "arrays", "record"
_PARTIAL = "partial"

type _Report = Callable[[LocalCheckpointSkipped], None]


class Age(NamedTuple):
    """Attempt and step of a state. A later attempt may have gone back to an earlier step."""

    attempt: int
    step: int

    @property
    def name(self) -> str:
        return f"{self.attempt}-{self.step}"


@dataclass(frozen=True)
class Written:
    """The end of one save on this host."""

    step: int
    bytes: int
    seconds: float
    """Time to write in the background."""
    fault: str = ""
    """Why it could not be written, for example because the memory is full. Empty if it is complete."""


@dataclass(frozen=True)
class Restored:
    """A state from the memory of the pods."""

    state: TrainState
    record: Record
    age: Age
    hosts: int
    """Number of hosts whose pods held it, without those whose part was damaged."""


def local_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in the memory of this host's pod.

    Raises:
        InvalidSpec: the environment does not name one.
    """
    if not (folder := environment.get(LOCAL_CHECKPOINTS_VARIABLE)):
        raise InvalidSpec(
            f"training.local_save_every_steps needs a folder in the memory of the pod: {LOCAL_CHECKPOINTS_VARIABLE}"
            " must name it, got nothing"
        )
    return Path(folder)


class LocalCheckpoints:
    """The states of one run in this host's pod. Every process of the job has one and makes the same calls."""

    def __init__(self, folder: Path, run: Run, shapes: TrainState, processes: Processes):
        self._folder, self._run, self._processes = folder, run, processes
        self._shards = Shards(shapes)
        self._thread = ThreadPoolExecutor(1, "local checkpoints")
        self._writing: Future[Written] | None = None

    def restore(self, saved: int, take: Take, report: _Report) -> Restored | None:
        """Return the newest state that the pods hold together and whose fingerprints are right, or `None`. Delete all
        others.

        `saved` is the step of the newest checkpoint in storage, 0 without one; only the leader's value counts. An older
        state is not used. Parts that are damaged, and states that are incomplete, are reported through `report`.
        """
        newest = self._processes.share("local/saved", lambda: saved)
        records = self._records()
        offers = [[Age(*each) for each in one] for one in self._processes.gather("local/held", [*records])]
        found = None
        for age in sorted({age for one in offers for age in one if age.step >= newest}, reverse=True):
            holders = {index for index, one in enumerate(offers) if age in one}
            if found := self._restore_from(holders, age, records.get(age, {}), take, report):
                break
        self._keep_only(found.age.name if found else "")
        return found

    def begin(self, state: TrainState, take: Take) -> list[Fingerprints]:
        """Return the fingerprints of `state` in each replica, after all hosts have written the state before it."""
        # They are a collective, in which each host takes part only after it has written.
        if self._writing:
            self._writing.exception()
        return take(state)

    def save(self, step: int, state: TrainState, fingerprints: Fingerprints, steps: Sequence[str] = ()) -> None:
        """Begin to write `state`, after `begin`. It returns when the arrays are copied from the devices. `steps` are
        the lines of steps that this process has not stored."""
        record = {"fingerprints": fingerprints, "manifest": self._run.manifest, "steps": [*steps]}
        age = Age(self._run.start, step)
        self._writing = self._thread.submit(self._write, age, record, self._shards.copies(state))

    def written(self) -> Written | None:
        """Return the end of the last save. `None` if there was none, or it is still being written."""
        return self._writing.result() if self._writing and self._writing.done() else None

    def clear(self) -> None:
        if self._writing:
            self._writing.exception()
        self._keep_only("")

    def _write(self, age: Age, record: Mapping[str, Any], blocks: Sequence[np.ndarray]) -> Written:
        began = time.monotonic()
        size = sum(block.nbytes for block in blocks)
        newest = max(self._complete(), default=None)
        kept = newest.name if newest else ""
        self._keep_only(kept)
        partial = self._folder / _PARTIAL
        try:
            partial.mkdir(parents=True)
            with (partial / ARRAYS).open("wb") as file:
                for block in blocks:
                    file.write(memoryview(block.reshape(-1).view(np.uint8)))
            (partial / RECORD).write_text(json.dumps(record))
            partial.rename(self._folder / age.name)
        except OSError as error:
            self._keep_only(kept)
            return Written(age.step, size, time.monotonic() - began, first_line(error))
        return Written(age.step, size, time.monotonic() - began)

    def _complete(self) -> Iterator[Age]:
        if self._folder.exists():
            names = [path.name for path in self._folder.iterdir() if path.name != _PARTIAL]
            yield from (Age(*map(int, name.split("-"))) for name in names)

    def _keep_only(self, name: str) -> None:
        for path in [*self._folder.iterdir()] if self._folder.exists() else ():
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def _records(self) -> dict[Age, dict[str, Any]]:
        """Return the record of each state that this pod holds a part of."""
        found: dict[Age, dict[str, Any]] = {}
        for age in self._complete():
            try:
                record = json.loads((self._folder / age.name / RECORD).read_text())
                Record.of(record)
                found[age] = record
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"{self._folder / age.name} cannot be used: {first_line(error)}", flush=True)
        return found

    def _restore_from(
        self, holders: set[int], age: Age, own: Mapping[str, Any], take: Take, report: _Report
    ) -> Restored | None:
        """Return a state from the pods of the processes `holders`, without those whose parts are damaged. `None` if the
        others do not hold all of it. `own` is this process's record of it. The result is the same on all processes."""
        found = None
        while not found and (way := plan(holders, self._shards.mesh)):
            found, damaged, fault = self._read(way, holders, age, own, take)
            if damaged:
                report(LocalCheckpointSkipped(age.step, fault))
                holders = holders - damaged
        if not found and holders:
            nowhere = f"some of its shards are in none of the {self._processes.count} pods"
            report(LocalCheckpointSkipped(age.step, nowhere))
        return found

    def _read(
        self, way: Plan, holders: Collection[int], age: Age, own: Mapping[str, Any], take: Take
    ) -> tuple[Restored | None, set[int], str]:
        """Return the state that all processes have `way`, or the processes whose parts of it may be damaged, and
        why."""
        arrays: Any = None
        fault = ""
        try:
            arrays = self._shards.read(self._folder / age.name / ARRAYS, way.reads)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, there is another one to continue from
            fault = first_line(error)
        # A key can be used only once, and each try has fewer holders.
        faults = self._processes.gather(f"local/read/{age.name}/{len(holders)}", fault)
        if failed := {index: f"process {index}: {fault}" for index, fault in enumerate(faults) if fault}:
            # A host that reads nothing can fail too, for lack of memory.
            return None, failed.keys() & holders or {*holders}, first_of([*failed.values()])
        # These are collectives. Only now is it certain that all processes take part.
        state = arrays if way.moves is None else sent(arrays, way.moves)
        replicas = take(state)
        record = self._record_of(age, own, holders)
        if wrong := differences(record.fingerprints, replicas):
            spoilt = [index for index, one in enumerate(replicas) if one != record.fingerprints]
            readers = way.readers(self._shards.mesh, spoilt)
            names = ", ".join(map(str, sorted(readers)))
            return None, readers, f"arrays of process {names} are not what was saved: {first_of(wrong)}"
        return Restored(state, record, age, len(holders)), set(), ""

    def _record_of(self, age: Age, own: Mapping[str, Any], holders: Collection[int]) -> Record:
        """Return the record of the first holder, with the leader's lines of steps, on all processes."""
        # The lines are good even if the arrays next to them are damaged.
        told = {"steps": own.get("steps", [])} | (dict(own) if self._processes.index == min(holders) else {})
        found = self._processes.gather(f"local/record/{age.name}/{len(holders)}", told)
        return replace(Record.of(found[min(holders)]), steps=tuple(line for one in found for line in one["steps"]))


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
            add_unstored(run.steps, found.age.attempt, found.record.steps)
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
        self._checkpoints.clear()

"""Keeps the newest states of a run in the memory of the hosts' nodes, in a folder that outlives the process:

    <folder>/<run>/<attempt>-<step>/arrays    see `local_shards`
    <folder>/<run>/<attempt>-<step>/record    JSON: what they are, with the fingerprints and manifest of a checkpoint

All hosts save at the same steps. The next attempt continues from the newest state of which each shard is on some node.
Replicas hold the same shards, so a lost node costs nothing if there are others. A node keeps one complete state while
it writes the next. `begin` waits until all hosts have written the last one, so no host deletes a state before all
others have a later one.
"""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from workloads.progress import LocalCheckpointSkipped
from workloads.spec import LOCAL_CHECKPOINTS_VARIABLE
from workloads.training.checkpoint import Record
from workloads.training.failures import InvalidSpec, first_line, first_of
from workloads.training.fingerprint import Fingerprints, Take, differences
from workloads.training.local_shards import Shards, plan
from workloads.training.restore import sent
from workloads.training.runs import Run
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

ARRAYS, RECORD = "arrays", "record"
_PARTIAL = "partial"


class Age(NamedTuple):
    """Sort key of states. A later attempt may have gone back to an earlier step."""

    attempt: int
    step: int


@dataclass(frozen=True)
class Held:
    """A state on a node, or the node's part of it."""

    attempt: int
    step: int
    saved: int
    """Step of the newest checkpoint in storage at that time; 0 without one."""
    slots: tuple[int, ...]
    """Slots whose shards are there."""

    @property
    def age(self) -> "Age":
        return Age(self.attempt, self.step)

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
    """A state from the memory of the nodes."""

    state: TrainState
    record: Record
    held: Held
    hosts: int
    """Number of hosts whose nodes held it."""
    steps: list[str]
    """Lines of steps that the leader had not stored when it saved."""


def local_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder in the memory of this host's node.

    Raises:
        InvalidSpec: the environment does not name one.
    """
    if not (folder := environment.get(LOCAL_CHECKPOINTS_VARIABLE)):
        raise InvalidSpec(
            f"training.local_save_every_steps needs a folder in the memory of the node: {LOCAL_CHECKPOINTS_VARIABLE}"
            " must name it, got nothing"
        )
    return Path(folder)


class LocalCheckpoints:
    """The states of one run on this host's node. Every process of the job has one and makes the same calls."""

    def __init__(self, folder: Path, run: Run, shapes: TrainState, processes: Processes):
        self._folder = folder / run.id
        self._run, self._processes = run, processes
        self._shards = Shards(shapes)
        self._thread = ThreadPoolExecutor(1, "local checkpoints")
        self._writing: Future[Written] | None = None
        # Only one job at a time uses the chips of a node, so what another run left here is of no use.
        for other in folder.iterdir() if folder.exists() else ():
            if other != self._folder:
                shutil.rmtree(other, ignore_errors=True)

    def restore(self, saved: int, take: Take, report: Callable[[LocalCheckpointSkipped], None]) -> Restored | None:
        """Return the newest state that the nodes hold together and whose fingerprints are right, or `None`. Delete all
        others.

        `saved` is the step of the newest checkpoint in storage, 0 without one; only the leader's value counts. An older
        state is not used, and neither is one from after a checkpoint that was removed from storage. States that are
        incomplete, damaged or too new are reported through `report`.
        """
        newest = self._processes.share("local/saved", lambda: saved)
        offers = [[_held(each) for each in one] for one in self._processes.gather("local/held", self._offer())]
        found = None
        for age in sorted({each.age for one in offers for each in one}, reverse=True):
            if found or age.step < newest:
                continue
            parts = [next((each for each in one if each.age == age), None) for one in offers]
            found, fault = self._read_together(parts, newest, take)
            if fault:
                report(LocalCheckpointSkipped(age.step, fault))
        self._keep_only(found.held.name if found else "")
        return found

    def begin(self, state: TrainState, take: Take) -> list[Fingerprints]:
        """Return the fingerprints of `state` in each replica, after all hosts have written the state before it."""
        # They are a collective, in which each host takes part only after it has written.
        if self._writing:
            self._writing.exception()
        return take(state)

    def save(
        self, step: int, state: TrainState, fingerprints: Fingerprints, saved: int, steps: Sequence[str] = ()
    ) -> None:
        """Begin to write `state`, after `begin`. It returns when the arrays are copied from the devices. `saved` is as
        in `Held`, and `steps` are the lines of steps that this process has not stored."""
        held = Held(self._run.start, step, saved, self._shards.own_slots)
        facts = {"layout": self._shards.layout, "fingerprints": fingerprints, "manifest": self._run.manifest}
        record = {**asdict(held), **facts, "steps": [*steps]}
        self._writing = self._thread.submit(self._write, held, record, self._shards.copies(state))

    def written(self) -> Written | None:
        """Return the end of the last save. `None` if there was none, or it is still being written."""
        return self._writing.result() if self._writing and self._writing.done() else None

    def clear(self) -> None:
        """Delete all states of the run."""
        if self._writing:
            self._writing.exception()
        self._keep_only("")

    def _write(self, held: Held, record: Mapping[str, Any], blocks: Sequence[np.ndarray]) -> Written:
        began = time.monotonic()
        size = sum(block.nbytes for block in blocks)
        newest = max(self._complete(), key=lambda name: [*map(int, name.split("-"))], default="")
        self._keep_only(newest)
        partial = self._folder / _PARTIAL
        try:
            partial.mkdir(parents=True)
            with (partial / ARRAYS).open("wb") as file:
                for block in blocks:
                    file.write(memoryview(block.reshape(-1).view(np.uint8)))
            (partial / RECORD).write_text(json.dumps(record))
            partial.rename(self._folder / held.name)
        except OSError as error:
            self._keep_only(newest)
            return Written(held.step, size, time.monotonic() - began, first_line(error))
        return Written(held.step, size, time.monotonic() - began)

    def _complete(self) -> Iterator[str]:
        """Yield the names of the complete states."""
        if self._folder.exists():
            yield from (path.name for path in self._folder.iterdir() if path.name != _PARTIAL)

    def _keep_only(self, name: str) -> None:
        for path in [*self._folder.iterdir()] if self._folder.exists() else ():
            if path.name != name:
                shutil.rmtree(path, ignore_errors=True)

    def _offer(self) -> list[dict[str, Any]]:
        """Return what this node holds of the arrays of this job."""
        found: list[dict[str, Any]] = []
        for name in sorted(self._complete()):
            try:
                record = json.loads((self._folder / name / RECORD).read_text())
                if record["layout"] == self._shards.layout:
                    Record.of(record)
                    found.append(asdict(_held(record)))
            except (OSError, ValueError, KeyError, TypeError) as error:
                print(f"{self._folder / name} cannot be used: {first_line(error)}", flush=True)
        return found

    def _read_together(self, parts: Sequence[Held | None], newest: int, take: Take) -> tuple[Restored | None, str]:
        """Return the state of which each process holds one of `parts`, or its error. The result is the same on all
        processes."""
        holders = {index: part for index, part in enumerate(parts) if part}
        held, own = next(iter(holders.values())), parts[self._processes.index]
        name = held.name
        if (saved := max(part.saved for part in holders.values())) > newest:
            return None, f"the checkpoint of step {saved} was there when it was saved, and is not any more"
        way = plan([part.slots if part else () for part in parts], self._shards.mesh)
        if way is None:
            return None, f"some of its shards are on none of the {len(parts)} nodes"
        arrays: Any = None
        fault = ""
        try:
            arrays = self._shards.read(self._folder / name / ARRAYS, own.slots if own else (), way.reads)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, there is a checkpoint to continue from
            fault = first_line(error)
        faults = self._processes.gather(f"local/read/{name}", fault)
        if any(faults):
            return None, first_of([f"process {index}: {fault}" for index, fault in enumerate(faults) if fault])
        # These are collectives. Only now is it certain that all processes take part.
        state = arrays if way.moves is None else sent(arrays, way.moves)
        replicas = take(state)
        record, steps = self._record_of(name, own is not None, next(iter(holders)))
        if wrong := differences(record.fingerprints, replicas):
            return None, f"arrays are not what was saved: {first_of(wrong)}"
        return Restored(state, record, held, len(holders), steps), ""

    def _record_of(self, name: str, holds: bool, first: int) -> tuple[Record, list[str]]:
        """Return the record on the node of process `first`, and the leader's lines of steps, on all processes."""
        own = json.loads((self._folder / name / RECORD).read_text()) if holds else {}
        facts = {key: own[key] for key in ("fingerprints", "manifest")} if self._processes.index == first else {}
        found = self._processes.gather(f"local/record/{name}", facts | {"steps": own.get("steps", [])})
        return Record(found[first]["fingerprints"], found[first]["manifest"]), [
            line for one in found for line in one["steps"]
        ]


def _held(record: Mapping[str, Any]) -> Held:
    return Held(record["attempt"], record["step"], record["saved"], tuple(record["slots"]))

"""Writes checkpoints of one run in the background with Orbax, and restores only what is bitwise correct:

    <step>/state     arrays of the training state
    <step>/record    JSON: fingerprint of each array, manifest of the attempt that saved it

Storage may return damaged arrays without an error, so the arrays have fingerprints. A checkpoint that cannot be used is
moved away, and the one before it is restored. `loop` decides when to save.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import jax
import orbax.checkpoint as ocp
from etils import epath

from workloads.progress import CheckpointSkipped
from workloads.spec import TrainingSpec
from workloads.training.failures import NewerCheckpoint, NoCheckpoint, SaveFailed, first_line, first_of, is_peer_lost
from workloads.training.fingerprint import Fingerprints, Take, differences
from workloads.training.restore import Restore
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

STATE = "state"
RECORD = "record"

FORMAT = 1
"""Format of the checkpoints that this image writes, and the newest that it reads. A change that an older image would
take for damage increases it. Records without a format are of format 1."""

MIN_SHARED_BYTES = 32 << 20
"""Smallest part for which replicas share the writing of a shard. Cutting it up takes a program for each shape, which
the first save of an attempt compiles while the devices wait."""

SHARING_REPLICAS = 4
"""Largest number of replicas that share the writing of a shard. If all shared it, parts would get smaller with each
slice, until slice 0 writes everything: 70B over 64 slices of 64 chips has shards of 1.2 GB, and 18 MB for each of 64
replicas. More than four would save little time and leave out smaller shards."""

POLL_SECONDS = 0.02
"""Time between two checks of a save while waiting for it."""


@dataclass(frozen=True)
class Record:
    """The record of a checkpoint."""

    fingerprints: Fingerprints
    manifest: dict[str, Any]
    """Manifest of the attempt that saved it; see `runs`."""
    attempt: int = 0
    """Number of that attempt."""
    steps: tuple[str, ...] = ()
    """Lines of its last steps, which were not in storage when the save began."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """Return the record in a JSON object.

        Raises:
            ValueError: it has another shape.
        """
        match found:
            case {"fingerprints": dict(), "manifest": dict()}:
                # Earlier images wrote no lines.
                steps = tuple(map(str, found.get("steps", ())))
                return cls(found["fingerprints"], found["manifest"], int(found.get("attempt", 0)), steps)
            case _:
                raise ValueError("expected a record with fingerprints and a manifest")


def read_record(folder: epath.Path) -> Record:
    """Return the record of the checkpoint in `folder`.

    Raises:
        NewerCheckpoint: a newer image wrote it.
    """
    found: Any = ocp.JsonCheckpointHandler().restore(folder / RECORD)
    if not isinstance(found, dict):
        raise ValueError(f"expected a record with fingerprints and a manifest, got a {type(found).__name__}")
    if (written := found.get("format", 1)) > FORMAT:
        raise NewerCheckpoint(
            f"the checkpoint of step {folder.name} has format {written}, and this image reads formats up to {FORMAT};"
            f" deploy the image that wrote it ({found.get('manifest', {}).get('image')}) or a newer one"
        )
    return Record.of(found)


class _Manager(ocp.CheckpointManager):
    failure: Exception | None = None
    """Error of this host when it wrote its part of a checkpoint."""

    def reached_preemption(self, step: int) -> bool:
        """Return False. Hosts agree on where to stop by numbers that only grow (`runtime`), but steps repeat after a
        rollback. JAX puts the stop after the last number that any host queried, so it would miss a smaller one."""
        return False

    def _wait_for_checkpointers(self) -> None:
        # This runs in the background, which then waits at a barrier for hosts that wait for this host's part. Without
        # this record, the failure would stay unnoticed for ten minutes.
        try:
            super()._wait_for_checkpointers()
        except Exception as error:
            self.failure = error
            raise


class Checkpoints:
    """The checkpoints in one folder. Every process of the job has one and makes the same calls."""

    def __init__(self, folder: epath.Path, schedule: TrainingSpec, processes: Processes):
        self._folder = folder
        self._processes = processes
        self._read_once_from_replicas = schedule.read_once_from_replicas
        self._unannounced: list[int] = []
        self._searches = 0
        options = ocp.CheckpointManagerOptions(
            max_to_keep=schedule.keep_checkpoints,
            keep_period=schedule.keep_every_steps,
            cleanup_tmp_directories=True,
        )
        self._reader = ocp.StandardCheckpointHandler()
        arrays = ocp.type_handlers.ArrayHandler(
            min_slice_bytes_for_replica_parallel=MIN_SHARED_BYTES,
            max_replicas_for_replica_parallel=SHARING_REPLICAS,
        )
        writer = ocp.PyTreeCheckpointHandler(
            type_handler_registry=ocp.type_handlers.create_type_handler_registry((jax.Array, arrays))
        )
        handlers = {STATE: writer, RECORD: ocp.JsonCheckpointHandler()}
        self._orbax = _Manager(folder, options=options, item_handlers=handlers)

    def steps(self) -> list[int]:
        """Return the steps with a complete checkpoint, ascending."""
        return sorted(self._orbax.all_steps())

    def restore(
        self, shapes: TrainState, take: Take, report: Callable[[CheckpointSkipped], None], before: float = math.inf
    ) -> TrainState | None:
        """Return the newest state from before step `before` that every process can read and whose fingerprints are
        right. `None` without any checkpoint from before that step.

        A checkpoint that cannot be used is moved away, because training reaches that step again, and is reported
        through `report`. The one before it is tried next. Checkpoints from `before` on, which must be complete by now,
        are moved away too.

        Raises:
            NoCheckpoint: there are checkpoints, but none can be used. They are not moved.
            NewerCheckpoint: a newer image wrote the newest one that is not damaged. It is not moved.
        """
        steps = self.steps()
        useless = f"from step {before} on, the weights are those that gave no finite step"
        skipped = dict.fromkeys([step for step in steps if step >= before], useless)
        earlier = steps[: len(steps) - len(skipped)]
        if not earlier:
            return None
        self._searches += 1
        for step in reversed(earlier):
            if newer := self._processes.share(f"format/{self._searches}/{step}", partial(self._newer_format, step)):
                raise NewerCheckpoint(newer)
            state, fault = self._read_together(step, shapes, take)
            if state is not None:
                self._move_away(skipped, report)
                return state
            skipped[step] = fault
        found = "; ".join(f"step {step}: {fault}" for step, fault in skipped.items())
        raise NoCheckpoint(
            f"none of the {len(skipped)} checkpoints in {self._folder} can be used ({found});"
            " put a good one there, or begin a new run with storage.existing_run: new"
        )

    def save(self, step: int, state: TrainState, record: Record) -> None:
        """Begin to write `state`, which must be equal on all replicas, after the previous save has ended.

        It returns when the arrays are copied from the devices.

        Raises:
            SaveFailed: this host could not begin to write, or could not write its part of the previous save.
        """
        written = {"format": FORMAT, **vars(record), "steps": [*record.steps]}
        items = {STATE: ocp.args.PyTreeSave(state), RECORD: ocp.args.JsonSave(written)}
        try:
            begun = self._orbax.save(step, args=ocp.args.Composite(**items))
        except Exception as error:
            # Errors of the devices and of other hosts are not those of storage, whose types differ by store.
            if isinstance(error, jax.errors.JaxRuntimeError) or is_peer_lost(error):
                raise
            raise self._failed(step, error) from error
        assert begun, f"Orbax refuses step {step}: it has a checkpoint of it or of a later one"
        self._unannounced.append(step)

    def finished(self, wait: bool) -> Iterator[int]:
        """Yield the steps whose checkpoint became complete since the last call.

        Raises:
            SaveFailed: this host could not write its part of a checkpoint.
        """
        while (saving := self._orbax.is_saving_in_progress()) and wait and not self._orbax.failure:
            time.sleep(POLL_SECONDS)
        if failure := self._orbax.failure:
            raise self._failed(self._unannounced[-1], failure) from failure
        if not saving:
            yield from self._unannounced
            self._unannounced.clear()

    def _failed(self, step: int, error: Exception) -> SaveFailed:
        return SaveFailed(
            f"the checkpoint of step {step} cannot be written to {self._folder}: {first_line(error)}; check the"
            " storage; the next attempt continues from the one before"
        )

    def close(self) -> None:
        self._orbax.close()
        self._reader.close()

    def _read_together(self, step: int, shapes: TrainState, take: Take) -> tuple[TrainState | None, str]:
        """Return the state, or its error. The result is the same on all processes."""
        restore = Restore(shapes, self._read_once_from_replicas)
        folder, found, fault = self._folder / str(step) / STATE, None, ""
        # This uses the handler and not the manager. The manager ends a restore with a barrier over all processes, where
        # processes that could read would wait forever for those that could not.
        try:
            found = restore.read(lambda shapes: self._reader.restore(folder, args=ocp.args.StandardRestore(shapes)))
        except Exception as error:  # noqa: BLE001 - damaged data reaches us as ValueError or as a bare Exception
            fault = first_line(error)
        faults = self._processes.gather(f"restore/{self._searches}/{step}", fault)
        if any(faults):
            return None, first_of([f"process {index}: {fault}" for index, fault in enumerate(faults) if fault])
        # These are collectives. Only now is it certain that all processes take part.
        state = restore.spread(found)
        replicas = take(state)
        verdict = self._processes.share(f"verdict/{self._searches}/{step}", lambda: self._verdict(step, replicas))
        return (None, verdict) if verdict else (state, "")

    def _newer_format(self, step: int) -> str:
        try:
            read_record(self._folder / str(step))
        except NewerCheckpoint as error:
            return str(error)
        except Exception:  # noqa: BLE001 - a damaged record is found again, and reported, when the arrays are checked
            return ""
        return ""

    def _verdict(self, step: int, replicas: list[Fingerprints]) -> str:
        try:
            expected = read_record(self._folder / str(step)).fingerprints
        except Exception as error:  # noqa: BLE001 - as for the arrays
            return f"no fingerprints: {first_line(error)}"
        wrong = differences(expected, replicas)
        return f"arrays are not what was saved: {first_of(wrong)}" if wrong else ""

    def _move_away(self, skipped: dict[int, str], report: Callable[[CheckpointSkipped], None]) -> None:
        for step, reason in skipped.items():
            moved_to = self._processes.share(f"moved/{self._searches}/{step}", partial(self._move, step))
            report(CheckpointSkipped(step, moved_to, reason))
        if skipped:
            self._orbax.reload()

    def _move(self, step: int) -> str:
        # The target is next to Orbax's folder, not in a new folder, which would not exist yet in an object store.
        # There, a rename moves object by object within the store, and raises if one is not moved.
        target = self._folder.parent / f"unusable-checkpoint-{step}-{time.strftime('%Y%m%dT%H%M%S')}"
        (self._folder / str(step)).rename(target)
        return str(target)

"""Checkpoints of one run: written in the background, read back bit by bit or not at all.

Owns Orbax, what lies in a checkpoint beside the arrays, and the rule what happens when one cannot be used:

    <step>/state     arrays of the training state
    <step>/record    JSON: fingerprint of each array, manifest of the start that saved it

Storage hands out damaged arrays without an error, hence the fingerprints. When to save is up to `loop`.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import orbax.checkpoint as ocp
from etils import epath

from workloads.progress import CheckpointSkipped
from workloads.spec import TrainingSpec
from workloads.training.failures import NoCheckpoint, SaveFailed
from workloads.training.fingerprint import Fingerprints, Take, differing
from workloads.training.restore import Restore
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

STATE = "state"
RECORD = "record"

SMALLEST_SHARED_BYTES = 32 << 20
"""Replicas share the writing of a shard when each one's part is at least this large: to cut it up takes a program
for each shape, which the first save of a start compiles while the devices wait."""

SHARING_REPLICAS = 4
"""Most replicas that share the writing of a shard. Among all of them the parts get smaller as slices are added, until
slice 0 writes everything: 70B over 64 slices of 64 chips has shards of 1.2 GB and 18 MB for each of 64 replicas. More
than four would save little time and leave out smaller shards."""

POLL_SECONDS = 0.02
"""Between two looks at a save that is waited for."""


@dataclass(frozen=True)
class Record:
    """What a checkpoint says about its arrays."""

    fingerprints: Fingerprints
    manifest: dict[str, Any]
    """See `runs`."""


def read_record(folder: epath.Path) -> Record:
    """The record of the checkpoint in `folder`."""
    return Record(**ocp.JsonCheckpointHandler().restore(folder / RECORD))


class _Manager(ocp.CheckpointManager):
    failure: Exception | None = None
    """Why this host could not write its part of a checkpoint."""

    def reached_preemption(self, step: int) -> bool:
        """Never: hosts agree on where to stop by numbers that only grow (`runtime`), and a step falls in a rollback.
        JAX sets the stop one after the last number that any host asked for: after a smaller one it would be missed."""
        return False

    def _wait_for_checkpointers(self) -> None:
        # In the background, which goes on to a barrier where it waits for hosts that wait for this one's part: nobody
        # else would hear of it for ten minutes.
        try:
            super()._wait_for_checkpointers()
        except Exception as error:
            self.failure = error
            raise


class Checkpoints:
    """The checkpoints in one folder; every process of the job holds one and calls it alike."""

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
            min_slice_bytes_for_replica_parallel=SMALLEST_SHARED_BYTES,
            max_replicas_for_replica_parallel=SHARING_REPLICAS,
        )
        writer = ocp.PyTreeCheckpointHandler(
            type_handler_registry=ocp.type_handlers.create_type_handler_registry((jax.Array, arrays))
        )
        handlers = {STATE: writer, RECORD: ocp.JsonCheckpointHandler()}
        self._orbax = _Manager(folder, options=options, item_handlers=handlers)

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return sorted(self._orbax.all_steps())

    def restore(self, shapes: TrainState, take: Take, report: Callable[[CheckpointSkipped], None]) -> TrainState | None:
        """The newest state that every process can read and that is what was saved; None without any checkpoint.

        Goes back one for each that cannot be used, moves it out of the way, since training comes by that step
        again, and says so through `report`.

        Raises:
            NoCheckpoint: there are checkpoints and none can be used; all stay where they are.
        """
        return self._newest({}, shapes, take, report)

    def go_back(
        self, before: int, shapes: TrainState, take: Take, report: Callable[[CheckpointSkipped], None]
    ) -> TrainState | None:
        """As `restore`, the newest state from before step `before`; None when there is no checkpoint of such a step.

        Later ones, which must be complete by now, are moved out of the way too, since training comes by there again.
        """
        later = {
            step: f"from step {before} on the weights are those that gave no finite step"
            for step in self.steps()
            if step >= before
        }
        return None if len(later) == len(self.steps()) else self._newest(later, shapes, take, report)

    def _newest(
        self, later: dict[int, str], shapes: TrainState, take: Take, report: Callable[[CheckpointSkipped], None]
    ) -> TrainState | None:
        skipped = dict(later)
        self._searches += 1
        for step in reversed([step for step in self.steps() if step not in later]):
            state, fault = self._read_together(step, shapes, take)
            if state is not None:
                self._move_away(skipped, report)
                return state
            skipped[step] = fault
        if skipped:
            found = "; ".join(f"step {step}: {fault}" for step, fault in skipped.items())
            raise NoCheckpoint(
                f"none of the {len(skipped)} checkpoints in {self._folder} can be used ({found});"
                " put a good one there, or begin a new run by storage.existing_run: anew"
            )
        return None

    def save(self, step: int, state: TrainState, fingerprints: Fingerprints, manifest: dict[str, Any]) -> None:
        """Begin to write `state`, of which all replicas hold the same, when no other save is under way; returns once
        the arrays are copied off the devices."""
        record = {"fingerprints": fingerprints, "manifest": manifest}
        items = {STATE: ocp.args.PyTreeSave(state), RECORD: ocp.args.JsonSave(record)}
        begun = self._orbax.save(step, args=ocp.args.Composite(**items))
        assert begun, f"Orbax refuses step {step}: it has a checkpoint of it or of a later one"
        self._unannounced.append(step)

    def finished(self, wait: bool) -> Iterator[int]:
        """Steps whose checkpoint became complete since the last call.

        Raises:
            SaveFailed: this host could not write its part of one.
        """
        while (saving := self._orbax.is_saving_in_progress()) and wait and not self._orbax.failure:
            time.sleep(POLL_SECONDS)
        self._require_no_failure()
        if not saving:
            yield from self._unannounced
            self._unannounced.clear()

    def close(self) -> None:
        """Wait for the background and let go of it."""
        self._orbax.close()
        self._reader.close()

    def _require_no_failure(self) -> None:
        if self._orbax.failure:
            raise SaveFailed(
                f"the checkpoint of step {self._unannounced[-1]} cannot be written to {self._folder}:"
                f" {_sentence(self._orbax.failure)}; look at the storage, the next start goes on from the one before"
            ) from self._orbax.failure

    def _read_together(self, step: int, shapes: TrainState, take: Take) -> tuple[TrainState | None, str]:
        """The state, or what is wrong with it; all processes come to the same answer."""
        restore = Restore(shapes, self._read_once_from_replicas)
        found, fault = self._read(self._folder / str(step) / STATE, restore)
        faults = self._processes.gather(f"restore/{self._searches}/{step}", fault)
        if any(faults):
            return None, _first([f"process {index}: {fault}" for index, fault in enumerate(faults) if fault])
        # Collectives: only now is it certain that all take part.
        state = restore.spread(found)
        replicas = take(state)
        verdict = self._verdict(step, replicas) if self._processes.leads else ""
        verdict = self._processes.share(f"verdict/{self._searches}/{step}", verdict)
        return (None, verdict) if verdict else (state, "")

    def _read(self, folder: epath.Path, restore: Restore) -> tuple[TrainState | None, str]:
        # The handler and not the manager: the manager ends a restore with a barrier over all processes, where
        # those that could read would wait for ever for those that could not.
        try:
            return restore.read(lambda shapes: self._reader.restore(folder, args=ocp.args.StandardRestore(shapes))), ""
        except Exception as error:  # noqa: BLE001 - damaged data reaches us as ValueError or as a bare Exception
            return None, _sentence(error)

    def _verdict(self, step: int, replicas: list[Fingerprints]) -> str:
        try:
            expected = read_record(self._folder / str(step)).fingerprints
        except Exception as error:  # noqa: BLE001 - as for the arrays
            return f"no fingerprints: {_sentence(error)}"
        wrong = differing(expected, replicas)
        return f"arrays are not what was saved: {_first(wrong)}" if wrong else ""

    def _move_away(self, skipped: dict[int, str], report: Callable[[CheckpointSkipped], None]) -> None:
        for step, reason in skipped.items():
            moved_to = self._processes.share(
                f"moved/{self._searches}/{step}", self._moved(step) if self._processes.leads else ""
            )
            report(CheckpointSkipped(step, moved_to, reason))
        if skipped:
            self._orbax.reload()

    def _moved(self, step: int) -> str:
        # Beside Orbax's folder and not in one of their own, which an object store would not have yet. There a rename
        # moves object by object within the store, and raises when one stays behind.
        target = self._folder.parent / f"unusable-checkpoint-{step}-{time.strftime('%Y%m%dT%H%M%S')}"
        (self._folder / str(step)).rename(target)
        return str(target)


def _first(faults: list[str]) -> str:
    others = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0]}{others}"


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


class SaveTimer:
    """The leader's clock decides, and says with each decision at which batch the hosts shall ask it again: batches
    and not steps, since a rollback takes the steps back and the hosts can talk about each number once.

    That is half of the steps that the time left seems to allow, so it is asked some ten times between two saves and
    a pace that falls by half does not make a save late.
    """

    def __init__(
        self, limit_seconds: float, processes: Processes, batch: int, clock: Callable[[], float] = time.monotonic
    ):
        self._limit = limit_seconds
        self._processes = processes
        self._clock = clock
        self.saved(batch)

    def saved(self, batch: int) -> None:
        """The state before `batch` is safe: the time begins anew."""
        self._saved = self._asked = self._clock()
        self._asked_batch, self._ask_at = batch, batch + 1

    def is_up(self, batch: int) -> bool:
        """Whether to save before `batch`; every process asks for the same batches, one after the other."""
        if batch < self._ask_at:
            return False
        self._ask_at = int(
            self._processes.share(f"save/{batch}", str(self._next(batch)) if self._processes.leads else "")
        )
        return self._ask_at == batch

    def _next(self, batch: int) -> int:
        """The batch to ask at next; `batch` itself when there is no time for two more."""
        now = self._clock()
        seconds_per_batch = (now - self._asked) / (batch - self._asked_batch)
        left = self._limit - (now - self._saved)
        self._asked, self._asked_batch = now, batch
        return batch + max(0, int(left / 2 / max(seconds_per_batch, 1e-6)))

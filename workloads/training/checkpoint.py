"""Checkpoints of one run: written in the background, read back bit by bit.

Owns Orbax and the rule what happens when a checkpoint cannot be read. When to save is up to `loop`.
"""

from collections.abc import Callable, Iterator

import jax
import orbax.checkpoint as ocp
from etils import epath

from workloads.training.failures import InvalidSpec
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

ITEM = "state"
"""Folder of the training state in a step's folder."""


class Checkpoints:
    """The checkpoints in one folder; every process of the job holds one and calls it alike."""

    def __init__(self, folder: epath.Path, keep: int, processes: Processes):
        self._folder = folder
        self._processes = processes
        self._unannounced: list[int] = []
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, cleanup_tmp_directories=True)
        self._reader = ocp.StandardCheckpointHandler()
        self._orbax = ocp.CheckpointManager(folder, options=options)

    def steps(self) -> list[int]:
        """Steps with a complete checkpoint, ascending."""
        return sorted(self._orbax.all_steps())

    def restore(self, shapes: TrainState, report: Callable[[str], None]) -> TrainState | None:
        """The newest state that every process can read, or None when there is no checkpoint.

        Goes back a step for each one that cannot be read, says so through `report`, and deletes it, since
        training comes by that step again.

        Raises:
            InvalidSpec: there are checkpoints and none can be read.
        """
        steps = self.steps()
        for step in reversed(steps):
            state, fault = self._read(step, shapes)
            faults = [word for word in self._processes.gather(f"restore/{step}", fault) if word]
            if not faults:
                return state
            report(f"checkpoint at step {step} cannot be read, going back to the one before: {faults[0]}")
            self._orbax.delete(step)
        if steps:
            raise InvalidSpec(
                f"none of the checkpoints {steps} in {self._folder} can be read; set storage.existing_run: anew"
            )
        return None

    def save(self, step: int, state: TrainState) -> None:
        """Begin to write `state`; returns once the arrays are copied off the devices."""
        self._orbax.save(step, args=ocp.args.Composite(**{ITEM: ocp.args.StandardSave(state)}))
        self._unannounced.append(step)

    def finished(self, wait: bool) -> Iterator[int]:
        """Steps whose checkpoint became complete since the last call."""
        if wait:
            self._orbax.wait_until_finished()
        if not self._orbax.is_saving_in_progress():
            yield from self._unannounced
            self._unannounced.clear()

    def close(self) -> None:
        """Wait for the background and let go of it."""
        self._orbax.close()
        self._reader.close()

    def _read(self, step: int, shapes: TrainState) -> tuple[TrainState | None, str]:
        # The handler and not the manager: the manager ends a restore with a barrier over all processes, where
        # those that could read would wait for ever for those that could not.
        item = self._folder / str(step) / ITEM
        try:
            return jax.block_until_ready(self._reader.restore(item, args=ocp.args.StandardRestore(shapes))), ""
        except Exception as error:  # noqa: BLE001 - damaged data reaches us as ValueError or as a bare Exception
            return None, f"{type(error).__name__}: {error}".splitlines()[0]

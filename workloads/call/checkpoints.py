"""Lets a function continue after a preemption from the state that it saved last.

Functions use this as `multislice.checkpoint_folder` and `multislice.resumable`.
"""

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from workloads.call.function import OUTPUT_VARIABLE

_FOLDER = "checkpoints"
_KEPT = 2
"""Number of checkpoints that are kept, so that a complete one exists while the next is written."""
_STATE = "state"


def checkpoint_folder() -> str:
    """Return the folder for checkpoints of this call. It is the same after every preemption, and is kept after the end.

    On the calling machine it is `{call.output}/checkpoints`.

    Raises:
        RuntimeError: this process is not a host of a call.
    """
    if output := os.environ.get(OUTPUT_VARIABLE):
        return f"{output}/{_FOLDER}"
    raise RuntimeError(
        f"expected {OUTPUT_VARIABLE}, which the hosts of a call have; set it to a folder to run the function here"
    )


class Resumable[S]:
    """A state that is saved between steps, see `resumable`."""

    def __init__(self, state: S, save_every: int, folder: str) -> None:
        # Orbax is imported late, because the calling machine imports this module and need not have it.
        import orbax.checkpoint as ocp

        self.state: S = state
        """The current state, a tree of arrays. Replace it in each step."""
        self._save_every = save_every
        self._save = ocp.args.StandardSave
        options = ocp.CheckpointManagerOptions(max_to_keep=_KEPT, cleanup_tmp_directories=True)
        self._checkpoints: Any = ocp.CheckpointManager(folder, options=options)
        last = self._checkpoints.latest_step()
        self.first_step = 0 if last is None else last + 1
        """First step that is not in the state yet. 0: nothing was saved before."""
        if last is not None:
            self.state = self._restored(last, folder)

    def steps(self, count: int) -> Iterator[int]:
        """Yield the steps up to `count` that the state lacks. Save the state after every `save_every` and the last.

        Writing continues in the background during the next steps. The end of the loop waits for it.
        """
        try:
            for step in range(self.first_step, count):
                yield step
                if (step + 1) % self._save_every == 0 or step + 1 == count:
                    self._checkpoints.save(step, args=self._save(_tree(self.state)), force=True)
        finally:
            self._checkpoints.close()

    def _restored(self, step: int, folder: str) -> S:
        import jax
        import orbax.checkpoint as ocp

        try:
            state = self._checkpoints.restore(step, args=ocp.args.StandardRestore(_tree(self.state)))[_STATE]
            # Orbax compares the shapes of JAX arrays only.
            expected, got = ([np.shape(array) for array in jax.tree.leaves(tree)] for tree in (state, self.state))
            if expected != got:
                raise ValueError(f"shapes {expected}, got {got}")
            return state
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder}: expected the arrays of the state that was saved after step {step}, got others ({error});"
                " pass a state with the same names and shapes, or another folder"
            ) from error


def _tree(state: object) -> dict[str, Any]:
    """Return the state as a tree. Orbax refuses a single array."""
    return {_STATE: state}


def resumable[S](state: S, *, save_every: int, folder: str | None = None) -> Resumable[S]:
    """Return a state with the steps that are left, on every host:

        training = multislice.resumable(state, save_every=100)
        for step in training.steps(10_000):
            training.state = train_step(training.state, batches[step])
        return training.state

    Args:
        state: Initial state, a tree of JAX or NumPy arrays and numbers. A saved one gets its shapes and shardings.
        save_every: Number of steps between saves.
        folder: Folder of the checkpoints. Default: `checkpoint_folder()`. Pass that of another call to continue it.
            Several states of one call need a folder each.

    Raises:
        ValueError: `save_every` is not a positive number, or the saved state has other arrays than `state`.
        RuntimeError: this process is not a host of a call, and `folder` is not set.
    """
    if save_every < 1:
        raise ValueError(f"expected save_every to be a number of steps of at least 1, got {save_every!r}")
    return Resumable(state, save_every, checkpoint_folder() if folder is None else folder)

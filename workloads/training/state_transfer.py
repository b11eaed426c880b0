"""Transfers the training state to a slice that joins, from another slice's memory or through storage.

A state counts only with the fingerprints that its giver took of it on its devices. If it arrives damaged from every
other slice, the leading slice saves a checkpoint of it, and the joining slice reads that very checkpoint:

    groups/<run id>-<restart>/states/<view>.json     the step of the checkpoint for the slices that join in a view
"""

import json
from threading import Event

import jax
import numpy as np
from etils import epath

from multislice_run.ledger import write_whole
from workloads.group.exchange import Exchange
from workloads.group.frames import Aborted, Damaged
from workloads.group.view import View
from workloads.training.checkpoint import CheckpointReader
from workloads.training.failures import SliceLost
from workloads.training.fingerprint import Fingerprints
from workloads.training.group_host import Prepared
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

LOOK_SECONDS = 0.5
"""Time between two looks for a state in storage."""

type Received = tuple[TrainState, np.ndarray]
"""A state, and the notes that belong to it as int64."""


class StateDamaged(Exception):  # noqa: N818 - not an error
    """The state of another slice arrived damaged, so that it has to be asked for again."""


class StateTransfer:
    """This host's part in giving states to other slices and in getting one."""

    def __init__(self, prepared: Prepared, processes: Processes, group: epath.Path, stop: Event):
        """`group` is the folder of the group, and `stop` is set when a transfer may have to end."""
        self._prepared, self._processes = prepared, processes
        self._folder, self._stop = group / "states", stop

    def give(self, exchange: Exchange, receiver: int, state: TrainState, notes: np.ndarray, step: int) -> None:
        """Send the state after `step` to slice `receiver`.

        Raises:
            Aborted: the receiver is gone, or `stop` is set.
        """
        arrays = self._prepared.state_shards.host_arrays(state)
        fingerprints = as_array(self._prepared.fingerprints(state, step))
        exchange.send_arrays("state", receiver, [*arrays, fingerprints, notes], self._stop)

    def receive(self, exchange: Exchange, donor: int, view: View, notes: np.ndarray) -> Received:
        """Return the state of slice `donor`. `notes` has the shape of its notes.

        Raises:
            StateDamaged: it arrived otherwise than it was sent, at one of this slice's hosts.
            Aborted: the donor is gone, or `stop` is set.
        """
        program, damage, aborted = self._prepared.program, "", None
        arrays = self._prepared.state_shards.empty()
        expected = np.empty(len(jax.tree.leaves(program.held_shapes)), np.uint64)
        notes = np.empty_like(notes)
        try:
            exchange.receive_arrays("state", donor, [*arrays, expected, notes], self._stop)
        except Damaged as error:
            damage = str(error)
        except Aborted as error:
            aborted = error
        found = self._processes.gather(f"state/{view.number}", [damage, str(aborted or "")])
        if damages := [each for each, _ in found if each]:
            raise StateDamaged(damages[0])
        if aborts := [each for _, each in found if each]:
            raise aborted or Aborted(f"another host of this slice: {aborts[0]}")
        state = self._prepared.state_shards.put(arrays)
        if not np.array_equal(as_array(self._prepared.fingerprints(state, int(state.step))), expected):
            raise StateDamaged("its fingerprints are not those of the sender")
        return state, notes

    def offer(self, view: View, step: int, notes: np.ndarray) -> None:
        """Tell slices that join in `view` that the checkpoint of `step` is complete."""
        if self._processes.leads:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._offer(view), json.dumps({"step": step, "notes": notes.tolist()}))

    def restore(self, view: View, reader: CheckpointReader) -> Received:
        """Return the state of the checkpoint that the leader of `view` saves for this slice.

        Raises:
            Aborted: `stop` is set before it is complete.
            SliceLost: the checkpoint cannot be read either.
        """
        while not self._offer(view).exists():
            if self._stop.wait(LOOK_SECONDS):
                raise Aborted(f"view {view.number} ended before the state was saved")
        facts = json.loads(self._offer(view).read_text())
        state, fault = reader.read(
            facts["step"],
            self._prepared.program.whole_shapes,
            self._prepared.program.fingerprints,
            f"view-{view.number}",
        )
        if state is None:
            raise SliceLost(
                f"the state arrived damaged from every other slice, and the checkpoint of step {facts['step']} that was"
                f" saved for this slice cannot be used either ({fault}); check the network, memory and storage of its"
                " hosts"
            )
        return state, np.array(facts["notes"], np.int64)

    def _offer(self, view: View) -> epath.Path:
        return self._folder / f"{view.number}.json"


def as_array(fingerprints: Fingerprints) -> np.ndarray:
    """Return fingerprints as numbers in the order of the arrays."""
    return np.array([int(each, 16) for each in fingerprints.values()], np.uint64)

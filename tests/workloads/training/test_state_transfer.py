"""`workloads.training.state_transfer`: a slice gets a state as it was sent, or says why not."""

import zlib
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from etils import epath

from tests.workloads.group.slices import slices
from tests.workloads.training.running import ALONE
from workloads.group.frames import Aborted
from workloads.group.view import STORAGE, View
from workloads.training.checkpoint import CheckpointReader
from workloads.training.failures import SliceLost
from workloads.training.group_host import Prepared
from workloads.training.state_transfer import StateDamaged, StateTransfer

VIEW = View(4, (0, 1), 0, {1: 0})
STORED = View(5, (0, 1), 0, {1: STORAGE})
NOTES = np.array([1, 0], np.int64)


class Shards:
    """A state of one array."""

    def empty(self) -> list[np.ndarray]:
        return [np.empty(1000, np.float32)]

    def host_arrays(self, state: Any) -> list[np.ndarray]:
        return [state.array]

    def put(self, arrays: list[np.ndarray]) -> SimpleNamespace:
        return SimpleNamespace(array=arrays[0], step=7)


STATE = Shards().put([np.arange(1000, dtype=np.float32)])


def transfer(folder: Path, stop: Event | None = None, damages: bool = False) -> StateTransfer:
    """Return the transfer of a host, at which arrays change if it `damages` them."""

    def fingerprints(state: Any, step: int) -> dict[str, str]:
        assert step == 7
        return {"array": f"{zlib.crc32(state.array.tobytes()) + damages:016x}"}

    program = SimpleNamespace(held_shapes=[0], whole_shapes=[0], fingerprints=None)
    prepared = SimpleNamespace(program=program, state_shards=Shards(), fingerprints=fingerprints)
    return StateTransfer(cast(Prepared, prepared), ALONE, epath.Path(folder), stop or Event())


class Reader:
    """A reader of checkpoints that finds this."""

    def __init__(self, found: Any, fault: str):
        self.found, self.fault, self.asked = found, fault, list[tuple[int, str]]()

    def read(self, step: int, shapes: Any, take: Any, search: str) -> tuple[Any, str]:
        self.asked.append((step, search))
        return self.found, self.fault


def as_reader(reader: Reader) -> CheckpointReader:
    return cast(CheckpointReader, reader)


@pytest.mark.parametrize("damages", [False, True])
def test_a_state_counts_only_with_the_fingerprints_of_its_sender(damages: bool, tmp_path: Path):
    with slices(0, 1) as hosts:

        def deed(name: int) -> Any:
            if name == 0:
                return transfer(tmp_path).give(hosts.exchanges[0], 1, cast(Any, STATE), NOTES, step=7)
            try:
                return transfer(tmp_path, damages=damages).receive(hosts.exchanges[1], 0, VIEW, np.zeros(2, np.int64))
            except StateDamaged as damaged:
                return str(damaged)

        received = hosts.all(deed)[1]

    if damages:
        assert received == "its fingerprints are not those of the sender"
    else:
        state, notes = received
        np.testing.assert_array_equal(state.array, STATE.array)
        assert notes.tolist() == [1, 0]


def test_a_state_in_storage_is_that_of_the_step_that_the_leader_offers(tmp_path: Path):
    reader = Reader(STATE, "")
    transfer(tmp_path).offer(STORED, 7, NOTES)

    state, notes = transfer(tmp_path).restore(STORED, as_reader(reader))

    assert (cast(Any, state), notes.tolist(), reader.asked) == (STATE, [1, 0], [(7, "view-5")])


def test_a_state_that_is_damaged_in_storage_too_ends_the_slice(tmp_path: Path):
    transfer(tmp_path).offer(STORED, 7, NOTES)

    with pytest.raises(SliceLost, match=r"the checkpoint of step 7 .* cannot be used either \(arrays differ\); check"):
        transfer(tmp_path).restore(STORED, as_reader(Reader(None, "arrays differ")))


def test_nothing_is_read_if_the_view_ends_before_the_state_is_saved(tmp_path: Path):
    stop, reader = Event(), Reader(STATE, "")
    stop.set()

    with pytest.raises(Aborted, match="view 5 ended before the state was saved"):
        transfer(tmp_path, stop).restore(STORED, as_reader(reader))
    assert not reader.asked

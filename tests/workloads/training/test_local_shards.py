"""The way of shards from the nodes that hold them, for meshes whose devices are only named."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workloads.training.local_shards import Plan, plan

OWN = [(0,), (1,), (0,), (1,)]
"""Slots on the nodes of two slices of two hosts with one chip each, when all hosts are where they were."""


def mesh(replica: int = 2, fsdp: int = 2, chips: int = 1) -> Any:
    """Return a mesh of hosts with `chips` devices each."""
    devices = [SimpleNamespace(process_index=number // chips) for number in range(replica * fsdp)]
    return SimpleNamespace(
        devices=np.array(devices, object).reshape(replica, 1, fsdp, 1), shape={"replica": replica, "fsdp": fsdp}
    )


def test_hosts_that_are_where_they_were_read_their_own_shards_and_send_nothing() -> None:
    assert plan(OWN, mesh()) == Plan({0: 0, 1: 1, 2: 0, 3: 1}, None)


def test_hosts_of_slices_that_changed_places_hold_the_same() -> None:
    assert plan([OWN[2], OWN[3], OWN[0], OWN[1]], mesh()) == plan(OWN, mesh())


@pytest.mark.parametrize(
    ("held", "moves"),
    [
        # Two hosts of a slice changed places.
        ([(1,), (0,), (0,), (1,)], ((0, 1), (1, 0))),
        # A node is new, and another slice has its shards.
        ([(), (1,), (0,), (1,)], ((1, 1), (2, 0))),
        # So is a whole slice.
        ([(), (), (0,), (1,)], ((2, 0), (3, 1))),
        # Each slice has lost one node, and the others have changed places.
        ([(1,), (), (), (0,)], ((0, 1), (3, 0))),
    ],
)
def test_shards_come_from_whichever_node_has_them(
    held: list[tuple[int, ...]], moves: tuple[tuple[int, int], ...]
) -> None:
    found = plan(held, mesh())
    assert found == Plan(dict(moves), moves)


@pytest.mark.parametrize("held", [[(), (1,), (), (1,)], [()] * 4])
def test_shards_that_no_node_has_leave_nothing_to_do(held: list[tuple[int, ...]]) -> None:
    assert plan(held, mesh()) is None


def test_each_host_reads_as_many_shards_as_it_has_chips() -> None:
    found = plan([(2, 3), (0, 1)], mesh(replica=1, fsdp=4, chips=2))
    assert found == Plan({0: 2, 1: 3, 2: 0, 3: 1}, ((0, 2), (1, 3), (2, 0), (3, 1)))


def test_a_host_of_a_larger_slice_may_hold_more_than_it_can_read() -> None:
    assert plan([(0, 1, 2, 3), ()], mesh(replica=1, fsdp=4, chips=2)) is None

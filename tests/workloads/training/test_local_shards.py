"""The way of shards from the pods that hold them, for meshes whose devices are only named."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from workloads.training.local_shards import Plan, plan


def mesh(replica: int = 2, fsdp: int = 2, chips: int = 1) -> Any:
    """Return a mesh of hosts with `chips` devices each. By default, two slices of two hosts with one chip each."""
    devices = [SimpleNamespace(process_index=number // chips) for number in range(replica * fsdp)]
    return SimpleNamespace(
        devices=np.array(devices, object).reshape(replica, 1, fsdp, 1), shape={"replica": replica, "fsdp": fsdp}
    )


def test_hosts_whose_pods_stayed_read_their_own_shards_and_send_nothing() -> None:
    assert plan(range(4), mesh()) == Plan((0, 1, 2, 3), None)


@pytest.mark.parametrize(
    ("holders", "moves"),
    [
        # A pod of the first slice is new.
        ((1, 2, 3), ((1, 1), (2, 0))),
        # So is a whole slice.
        ((2, 3), ((2, 0), (3, 1))),
        ((0, 1), ((0, 0), (1, 1))),
        # Each slice has a new pod.
        ((0, 3), ((0, 0), (3, 1))),
    ],
)
def test_shards_come_from_the_first_slice_that_has_them(
    holders: tuple[int, ...], moves: tuple[tuple[int, int], ...]
) -> None:
    assert plan(holders, mesh()) == Plan(tuple(position for position, _ in moves), moves)


@pytest.mark.parametrize("holders", [(1, 3), ()])
def test_shards_that_no_pod_has_leave_nothing_to_do(holders: tuple[int, ...]) -> None:
    assert plan(holders, mesh()) is None


def test_each_device_of_a_host_reads_its_own_shards() -> None:
    assert plan((1,), mesh(replica=2, fsdp=2, chips=2)) == Plan((2, 3), ((2, 0), (3, 1)))
    # Both replicas are on one host.
    assert plan((1,), mesh(replica=4, fsdp=2, chips=4)) == Plan((4, 5), ((4, 0), (5, 1)))


def test_a_wrong_replica_names_its_own_hosts_if_all_read_and_all_readers_if_shards_were_sent() -> None:
    every = plan(range(4), mesh())
    sent = plan((1, 2, 3), mesh())
    assert every
    assert sent
    assert every.readers(mesh(), [1]) == {2, 3}
    assert sent.readers(mesh(), [1]) == {1, 2}

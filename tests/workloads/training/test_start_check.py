from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.jobs import small_job
from workloads.spec import JobSpec
from workloads.training.check_host import require_devices
from workloads.training.failures import BadHost, InvalidSpec, Suspect, TrainingStopped
from workloads.training.joining import on_present_slices
from workloads.training.runtime import HostPosition, Processes


@dataclass(frozen=True)
class Chip:
    process_index: int
    slice_index: int
    platform: str = "tpu"
    id: int = 0
    coords: tuple[int, int, int] = (0, 0, 0)
    core_on_chip: int = 0


class Gathered(Processes):
    """The first process. The others' values are in `peers`, or else those of a good process."""

    peers: Sequence[tuple[int, int, Sequence[int]]] = ()

    def gather(self, key: str, value: Any) -> list[Any]:
        return [
            value,
            *(
                {"host": f"host-{i + 1}", "devices": d, "slice": s, "seen": [*v]}
                for i, (d, s, v) in enumerate(self.peers)
            ),
        ]


def job(min_count: int | None = None) -> JobSpec:
    """Return a job on two slices of two hosts of two chips."""
    return small_job(Path("somewhere"), replica=2, fsdp=4, hosts=2, min_count=min_count)


FIRST = HostPosition(("host-0", "host-1"), 0, 2, 0)
ORDERLY = [(2, 0, [0]), (2, 1, [1]), (2, 1, [1])]


def check(local: Sequence[Chip], peers: Sequence[tuple[int, int, Sequence[int]]]) -> None:
    processes = Gathered(0, 4, "host-0")
    Gathered.peers = peers
    require_devices(job().slices, [*local, Chip(1, 0)], FIRST, processes)


def test_orderly_hosts_pass() -> None:
    assert on_present_slices(job(), FIRST) == job()
    check([Chip(0, 0)] * 2, ORDERLY)


@pytest.mark.parametrize(
    ("local", "peers", "kind", "message"),
    [
        ([Chip(0, 0)], ORDERLY, BadHost, "host host-0 has 1 devices: expected 2 devices per host"),
        ([Chip(0, 0)] * 2, [*ORDERLY[:2], (1, 1, [1])], BadHost, "host host-3 has 1 devices: expected 2"),
        ([Chip(0, 0)] * 3, ORDERLY, InvalidSpec, "host host-0 has 3 devices: expected 2"),
        ([Chip(0, 1)] * 2, ORDERLY, InvalidSpec, r"host host-0 is in slice 0, its devices in \[1\]"),
        ([Chip(0, 0)] * 2, [*ORDERLY[:2], (2, 0, [0])], InvalidSpec, "expected 2 hosts in each of 2 slices, got"),
    ],
)
def test_hosts_with_other_devices_are_named(
    local: list[Chip], peers: list[tuple[int, int, Sequence[int]]], kind: type[TrainingStopped], message: str
) -> None:
    with pytest.raises(kind, match=message):
        check(local, peers)


def test_all_hosts_with_too_few_devices_are_suspects() -> None:
    with pytest.raises(BadHost) as stop:
        check([Chip(0, 0)], [(1, 0, [0]), *ORDERLY[1:]])
    assert stop.value.suspects == {Suspect(0, "host-0"), Suspect(0, "host-1")}


@pytest.mark.parametrize(
    ("min_count", "position", "message"),
    [
        (None, replace(FIRST, slice_count=1), "expected 2 slices .*, got 1"),
        (None, replace(FIRST, hosts=("host-0",)), "expected 2 hosts per slice .*, got 1"),
        (None, replace(FIRST, slice=2), "expected a MEGASCALE_SLICE_ID below 2, got 2"),
        (1, replace(FIRST, slice_count=3), r"expected 1 to 2 slices \(MEGASCALE_NUM_SLICES\), got 3"),
        (1, replace(FIRST, slice_count=0), r"expected 1 to 2 slices \(MEGASCALE_NUM_SLICES\), got 0"),
    ],
)
def test_a_position_that_the_specification_does_not_have_is_refused(
    min_count: int | None, position: HostPosition, message: str
) -> None:
    with pytest.raises(InvalidSpec, match=f"host host-0: {message}"):
        on_present_slices(job(min_count), position)


def test_a_job_goes_on_with_as_few_slices_as_it_may_and_grows_back() -> None:
    found = on_present_slices(job(min_count=1), replace(FIRST, slice_count=1))
    assert (found.slices.count, found.mesh.replica, found.mesh.fsdp) == (1, 1, 4)
    assert (found.training.global_batch, found.training.accumulation) == (16, 2)
    assert on_present_slices(job(min_count=1), FIRST) == job(min_count=1)

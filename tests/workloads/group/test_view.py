"""`workloads.group.view`: the register of views."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import pytest
from etils import epath

from sandbox import builds
from sandbox.servers import Supervision, start_gcs
from sandbox.site import create
from workloads.group.view import Endpoint, HostId, Register, Registered, View


def registered(number: int, one: int) -> Registered:
    return Registered(View(number, (one,), one, {3: one}), {HostId(one, 0): Endpoint(str(one), "a:1", "b:2")})


def test_only_the_first_of_many_that_create_a_view_succeeds(tmp_path: Path):
    def create(number: int, one: int) -> bool:
        return Register(epath.Path(tmp_path), "run", 0).create(registered(number, one))

    for number in range(1, 40):
        with ThreadPoolExecutor(8) as pool:
            made = [*pool.map(create, [number] * 8, range(8))]

        assert sum(made) == 1
        assert Register(epath.Path(tmp_path), "run", 0).newest() == registered(number, made.index(True))


def race(storage: str, process: int, environment: dict[str, str]) -> list[list[bool]]:
    """Return for each view which of four threads of this process created it."""
    os.environ.update(environment)

    def create_view(number: int, one: int) -> bool:
        return Register(epath.Path(storage), "run", 0).create(registered(number, one))

    with ThreadPoolExecutor(4) as pool:
        return [[*pool.map(create_view, [number] * 4, range(4 * process, 4 * process + 4))] for number in range(1, 11)]


@pytest.mark.complete
def test_only_the_first_of_two_processes_creates_a_view_in_a_bucket(tmp_path: Path):
    site, spawned = create(tmp_path / "site"), multiprocessing.get_context("spawn")
    (site.buckets / "bucket").mkdir(parents=True)
    supervision = Supervision(site.servers)
    start_gcs(site, builds.prepare(lambda _: None), supervision)
    try:
        with ProcessPoolExecutor(2, spawned) as processes:
            made = [*processes.map(race, ["gs://bucket/job"] * 2, range(2), [site.storage.environment] * 2)]
    finally:
        supervision.stop()

    winners = [[*first, *second].index(True) for first, second in zip(*made, strict=True)]
    assert [sum(first) + sum(second) for first, second in zip(*made, strict=True)] == [1] * 10
    stored = Register(epath.Path(site.buckets / "bucket" / "job"), "run", 0)
    assert stored.newest(after=9) == registered(10, winners[9])


def test_views_of_another_attempt_do_not_count(tmp_path: Path):
    Register(epath.Path(tmp_path), "run", 0).create(registered(1, 0))

    assert Register(epath.Path(tmp_path), "run", 1).newest() is None
    assert Register(epath.Path(tmp_path), "run", 0).newest(after=1) is None


BEGUN = View(2, (0, 1, 2), 0, {1: 0, 2: 0})


@pytest.mark.parametrize(
    ("view", "trained", "change"),
    [
        (View(3, (0, 2), 0), True, "lost 1"),
        (View(4, (0, 1, 2), 0, {1: 0}), True, "lost 1, joined 1"),
        (View(4, (0, 1, 2), 0, {1: 2}), False, "led by 0"),
        (View(4, (1, 2), 1, {2: 1}), False, "lost 0"),
        (View(4, (0, 2, 3), 0, {3: 0}), True, "lost 1, joined 3"),
    ],
)
def test_a_view_tells_what_became_of_the_slices_of_an_earlier_one(view: View, trained: bool, change: str):
    assert view.change_since(BEGUN, trained) == change
    assert view.change_since(None, trained) == "begun"

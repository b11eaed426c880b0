"""The agreement of pods on an attempt, in files."""

from pathlib import Path

import pytest
from etils import epath

from multislice_run.exit_codes import ExitCode
from multislice_run.worlds import (
    Ended,
    Ready,
    Roll,
    World,
    Worlds,
    next_world,
    outlived,
    pause_seconds,
    pod_id,
)
from tests.workloads.hosts import wait_until

FIRST = World(0, [0, 1], ["1000-a", "1000-b"])


def ended(*codes: int | None, saved: bool = False) -> list[Ready]:
    """Pods that are ready for the next attempt. The first one ended first."""
    return [
        Ready(f"host-{index}", f"host-{index}.job", pod_id(1 if code is not None else 2, "x"), code, index, saved)
        for index, code in enumerate(codes)
    ]


def following(before: World | None, ready: list[Ready], max_restarts: int = 3) -> World:
    """The next world with a slice for each pod."""
    found = next_world(before, range(len(ready)), ready, max_restarts)
    assert isinstance(found, World)
    return found


def test_the_roll_names_the_hosts_that_did_not_begin(tmp_path: Path) -> None:
    roll = Roll(epath.Path(tmp_path), "run-1", 0)
    for process in (0, 1, 3):
        roll.sign(process, Ready("any"))
    assert roll.missing(2, 2) == "3 of 4 hosts began, missing: slice 1 host 0"
    roll.sign(2, Ready("any"))
    assert roll.missing(2, 2) == ""


def test_the_roll_of_an_attempt_and_those_of_earlier_ones_are_forgotten(tmp_path: Path) -> None:
    rolls = [Roll(epath.Path(tmp_path), "run-1", number) for number in (0, 1, 9, 10)]
    for roll in rolls:
        roll.sign(0, Ready("any"))
    rolls[2].forget()
    folder = tmp_path / "starts" / "run-1"
    wait_until(
        lambda: sorted(f"{path.parent.name}/{path.name}" for path in folder.glob("*/*")) == ["10/0", "10/key", "9/key"]
    )
    # Hosts may still be reading it.
    assert rolls[2].key()


def test_all_hosts_of_an_attempt_have_its_key_and_no_other_attempt_has(tmp_path: Path) -> None:
    first, same, next_ = (Roll(epath.Path(tmp_path), "run-1", number) for number in (0, 0, 1))
    for roll in (first, next_):
        roll.sign(0, Ready("first"))
    same.sign(1, Ready("second"))
    assert first.key() == same.key() != next_.key()


def test_a_key_that_others_could_guess_is_refused(tmp_path: Path) -> None:
    roll = Roll(epath.Path(tmp_path), "run-1", 0)
    roll.sign(0, Ready("any"))
    (tmp_path / "starts" / "run-1" / "0" / "key").write_text("00")
    with pytest.raises(ValueError, match="key: expected 32 bytes, got 1"):
        roll.key()


def test_only_a_later_pod_takes_the_place_of_another(tmp_path: Path) -> None:
    roll = Roll(epath.Path(tmp_path), "run-1", 1)
    roll.sign(0, Ready("old", pod=pod_id(1.5, "f")))
    roll.sign(0, Ready("new", pod=pod_id(1.6, "a")))
    assert not roll.sign(0, Ready("old", pod=pod_id(1.5, "f")))
    assert roll.signed([0, 1]) == {0: Ready("new", pod=pod_id(1.6, "a"))}


@pytest.mark.parametrize(
    ("codes", "counted", "cause"),
    [
        ((ExitCode.CRASH, ExitCode.PEER_LOST), 1, "CRASH"),
        ((ExitCode.PEER_LOST, ExitCode.HANG), 1, "HANG"),
        # Nobody knows why, but no pod is new.
        ((ExitCode.PEER_LOST, ExitCode.PEER_LOST), 1, "PEER_LOST"),
        # JobSet counts lost pods.
        ((ExitCode.PEER_LOST, None), 0, ""),
        ((None, None), 0, ""),
        ((ExitCode.CRASH, None), 1, "CRASH"),
        ((ExitCode.PREEMPTED, None), 0, "PREEMPTED"),
        ((137, ExitCode.PEER_LOST), 1, "137"),
    ],
)
def test_a_restart_counts_by_the_exit_that_caused_the_others(
    codes: tuple[int | None, ...], counted: int, cause: str
) -> None:
    world = following(FIRST, ended(*codes))
    assert (world.number, world.counted, world.cause) == (1, counted, cause)


def test_one_restart_more_than_allowed_ends_the_job() -> None:
    found = next_world(FIRST, [0], ended(ExitCode.CRASH), max_restarts=0)
    assert isinstance(found, Ended)
    assert found.code == ExitCode.RESTARTS_USED_UP
    assert found.cause == "the job has used up its 0 restarts: attempt 1 ended with CRASH"


def test_a_slice_that_is_missing_or_back_costs_no_restart() -> None:
    without = following(FIRST, ended(ExitCode.PEER_LOST))
    assert (without.slices, without.counted) == ([0], 0)
    back = following(without, ended(ExitCode.PREEMPTED, None))
    assert (back.slices, back.counted) == ([0, 1], 0)


def test_the_entry_of_a_pod_is_not_taken_for_the_pod_that_replaces_it_with_its_slice() -> None:
    before = World(0, [0, 1], ["1-a", "1-b", "1-c", "1-d"])
    ready = {index: Ready("any", pod=pod) for index, pod in enumerate(before.pods)}
    assert outlived(ready, before, hosts=2) == []
    assert outlived(ready | {2: Ready("any", pod="2-c")}, before, hosts=2) == [3]
    assert outlived(ready | {2: Ready("any", pod="2-c"), 3: Ready("any", pod="2-d")}, before, hosts=2) == []
    assert outlived(ready, None, hosts=2) == []


def test_the_pause_grows_while_attempts_save_nothing_and_starts_over_after_one_that_did() -> None:
    world, pauses = FIRST, list[float]()
    for _ in range(10):
        world = following(world, ended(ExitCode.PREEMPTED), 0)
        pauses.append(pause_seconds(world.fruitless))
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    world = following(world, ended(ExitCode.PREEMPTED, saved=True), 0)
    assert pause_seconds(world.fruitless) == 0


def test_only_one_pod_forms_a_world_and_the_others_take_it(tmp_path: Path) -> None:
    one, other = (Worlds(epath.Path(tmp_path), "run-1") for _ in range(2))
    assert one.newest() is None
    assert one.form(FIRST) == FIRST
    assert other.form(World(0, [1], ["1000-b"])) == FIRST
    second = other.form(World(1, [0, 1], ["1000-a", "1000-b"]))
    assert one.newest() == second


def test_the_newest_world_is_found_if_its_number_was_not_written(tmp_path: Path) -> None:
    worlds = Worlds(epath.Path(tmp_path), "run-1")
    worlds.form(FIRST)
    (tmp_path / "worlds" / "run-1" / "newest").unlink()
    assert worlds.newest() == FIRST


def test_a_world_that_cannot_be_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "worlds" / "run-1").mkdir(parents=True)
    (tmp_path / "worlds" / "run-1" / "0").write_text('{"number": 1')
    with pytest.raises(ValueError, match="Expecting"):
        Worlds(epath.Path(tmp_path), "run-1").newest()

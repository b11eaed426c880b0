from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.report.runs import (
    began,
    began_slice,
    changed,
    event,
    failure,
    history,
    slice_lost_and_back,
    step,
    write_run,
)
from workloads.report.history import Start
from workloads.report.membership import SliceState, find_membership
from workloads.report.records import Event
from workloads.spec import ExitCode

PRESENT, JOINING, LOST = SliceState


def only_start(run: Path) -> Start:
    (start,) = history(run).attempts
    return start


def test_a_slice_that_restarts_is_part_of_the_same_attempt(tmp_path: Path) -> None:
    start = only_start(slice_lost_and_back(tmp_path))
    assert (start.began, start.ended, start.ending, start.cause) == ((0.0, 2.0), 27.0, "DONE", "")


def test_the_leaders_events_are_those_of_whoever_led(tmp_path: Path) -> None:
    start = only_start(slice_lost_and_back(tmp_path))
    told = [(each.time, each.name) for each in start.leader if each.name not in ("restore", "SlicesChanged")]
    assert told == [
        (9, "start"),
        (9.5, "compile"),
        (10, "RunStarted"),
        (26, "Evaluation"),
        (26.5, "RunSummary"),
        (27, "stop"),
    ]


def test_steps_of_slices_that_took_over_follow_each_other_each_once(tmp_path: Path) -> None:
    start = only_start(slice_lost_and_back(tmp_path))
    assert [each.step for each in start.steps] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert [each.time for each in start.steps] == sorted(each.time for each in start.steps)


def test_each_slice_is_present_joining_or_lost_at_each_moment(tmp_path: Path) -> None:
    membership = only_start(slice_lost_and_back(tmp_path)).membership
    assert membership
    found = [(each.slice, each.state, each.since, each.until) for each in membership.spells]
    assert found == [
        (0, PRESENT, 10, 15),
        (0, LOST, 15, 18),
        (0, JOINING, 18, 22.6),
        (0, PRESENT, 22.6, 27),
        (1, PRESENT, 10, 27),
        (2, PRESENT, 10, 27),
    ]
    assert [membership.absent_at(time) for time in (9, 14, 15, 20, 23)] == [0, 0, 1, 1, 0]
    assert membership.idle_seconds(14, 16) == pytest.approx(1 / 3)
    assert membership.idle_seconds(0, 100) == pytest.approx(7.6 / 3)


def test_slices_that_begin_together_are_present_while_they_get_their_first_state(tmp_path: Path) -> None:
    ledgers = {
        "0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1 2", "begun"), event(30, "save", step=9)],
        "0-1": [began_slice(9, 1, at=1), event(14, "restore", step=0, batch=0, donor=0)],
        "0-2": [began_slice(9, 2, at=2), event(15, "restore", step=0, batch=0, donor=0)],
    }
    membership = only_start(write_run(tmp_path, ledgers, {})).membership
    assert membership
    assert {spell.state for spell in membership.spells} == {PRESENT}


def test_a_slice_that_comes_late_does_not_make_the_others_wait(tmp_path: Path) -> None:
    ledgers = {
        "0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1", "begun"), changed(90, 8, "0 1 2", "joined 2")],
        "0-1": [began_slice(9, 1, at=1), event(10, "restore", step=0, batch=0, donor=0)],
        "0-2": [began_slice(80, 2, at=60), event(92, "restore", step=8, batch=8, donor=1)],
    }
    start = only_start(write_run(tmp_path, ledgers, {}))
    assert start.began == (0.0, 1.0)
    assert start.membership
    late = [(each.state, each.since, each.until) for each in start.membership.spells if each.slice == 2]
    assert late == [(LOST, 10, 60), (JOINING, 60, 92)]


def test_a_slice_that_restarts_soon_after_the_begin_does_not_count_as_one_that_the_others_waited_for(
    tmp_path: Path,
) -> None:
    ledgers = {
        "0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1 2", "begun"), changed(16, 3, "0 1 2", "joined 1")],
        "0-1": [began_slice(9, 1, at=1)],
        "0-2": [began_slice(9, 2, at=2)],
        "0-4": [began_slice(15, 1, at=13, restarts=1)],
    }
    assert only_start(write_run(tmp_path / "soon", ledgers, {})).began == (0.0, 2.0)
    # After all slices were lost, an attempt begins with processes that have restarted.
    again = {"1-4": [began_slice(9, 1, at=1, restarts=3), changed(10, 0, "1", "begun")]}
    assert only_start(write_run(tmp_path / "again", again, {})).began == (1.0, 1.0)


def test_a_failed_slice_ends_the_attempt_only_if_the_others_did_not_go_on(tmp_path: Path) -> None:
    bad = failure("host-0", "wrong products", ExitCode.BAD_HOST, began=0, time=14.9)
    start = only_start(slice_lost_and_back(tmp_path / "one", bad))
    assert (start.ending, start.failures[0].code) == ("DONE", ExitCode.BAD_HOST)
    ledgers = {
        "0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1 2", "begun"), changed(15, 4, "0 1", "lost 2")],
        "0-1": [began_slice(9, 1, at=1)],
        "0-2": [began_slice(9, 2, at=2)],
    }
    lost = failure("host-2", "SIGTERM", ExitCode.PREEMPTED, began=2, time=15.2)
    last = failure("host-1", "no memory", ExitCode.OUT_OF_MEMORY, began=1, time=20.0)
    start = only_start(write_run(tmp_path / "two", ledgers, {}, lost, last))
    assert (start.ending, start.cause) == ("OUT_OF_MEMORY", "host-1: no memory")


def test_a_slice_that_fails_before_it_joins_is_no_attempt_of_its_own(tmp_path: Path) -> None:
    again = failure("host-0", "wrong products", ExitCode.BAD_HOST, began=16, time=17.0)
    found = history(slice_lost_and_back(tmp_path, again))
    assert (len(found.starts), found.unopened) == (1, ())


def test_a_leader_that_left_does_not_end_the_attempt(tmp_path: Path) -> None:
    left = event(15, "stop", cause="Preempted", message="SIGTERM: slice 0 left after step 4", code="PREEMPTED")
    ledgers = {
        "0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1 2", "begun"), left],
        "0-1": [began_slice(9, 1, at=1), changed(15, 4, "1 2", "lost 0"), event(30, "save", step=9)],
        "0-2": [began_slice(9, 2, at=2)],
    }
    assert only_start(write_run(tmp_path, ledgers, {})).ending == "no end recorded"


def test_an_attempt_of_one_world_has_no_membership(tmp_path: Path) -> None:
    run = write_run(tmp_path, {"0-0": [began(1), event(2, "save", step=1)]}, {"0-0": [step(2, 3), step(1, 4)]})
    start = only_start(run)
    assert start.membership is None
    assert [each.step for each in start.steps] == [2, 1]


times = st.floats(0, 1e6)
views = st.sets(st.integers(0, 3), min_size=1).map(lambda slices: " ".join(map(str, sorted(slices))))


@st.composite
def ledgers_of_an_attempt(draw: st.DrawFn) -> dict[int, tuple[Event, ...]]:
    """Draw processes of up to three slices, with changes told by any of them at any time."""
    ledgers: dict[int, tuple[Event, ...]] = {}
    for process in range(draw(st.integers(1, 6))):
        start = Event(draw(times), "start", {"slice": process % 3, "began": draw(times)})
        told = [
            Event(time, "SlicesChanged", {"step": 1, "asked": 3, "slices": slices})
            for time, slices in draw(st.lists(st.tuples(times, views), max_size=4))
        ]
        arrived = [Event(time, "restore", {"donor": 0}) for time in draw(st.lists(times, max_size=2))]
        ledgers[process] = (start, *told, *arrived)
    return ledgers


@given(ledgers_of_an_attempt(), times)
def test_every_slice_is_in_one_state_at_every_moment(ledgers: Mapping[int, tuple[Event, ...]], ended: float) -> None:
    membership = find_membership(ledgers, ended)
    if membership is None:
        return
    began, until = membership.changes[0].time, max(ended, membership.changes[-1].time)
    for one in range(3):
        own = [spell for spell in membership.spells if spell.slice == one]
        assert all(before.until == after.since for before, after in zip(own, own[1:], strict=False))
        assert not own or (own[0].since, own[-1].until) == (began, until)
    away = sum(spell.until - spell.since for spell in membership.spells if spell.state is not PRESENT)
    assert membership.idle_seconds(began, until) == pytest.approx(away / 3, abs=1e-6)

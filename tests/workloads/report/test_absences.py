from pathlib import Path

import pytest

from tests.workloads.report.runs import began_slice, changed, event, failure, history, slice_lost_and_back, write_run
from workloads.report.absences import CUT_OFF, NOT_THERE, UNRECORDED, Absence, absences
from workloads.spec import ExitCode


def found_in(run: Path) -> list[Absence]:
    return [absence for start in history(run).starts for absence in absences(start)]


def test_a_lost_slice_is_away_until_it_has_the_state_of_another(tmp_path: Path) -> None:
    (found,) = found_in(slice_lost_and_back(tmp_path, usd_per_hour=3600.0))
    assert (found.slice, found.step, found.since, found.until) == (0, 4, 15, 22.6)
    assert (found.lost_seconds, found.joining_seconds) == pytest.approx((3.0, 4.6))
    # It is one of three slices.
    assert found.usd == pytest.approx(7.6 / 3)
    assert found.cause == UNRECORDED


def test_the_cause_is_what_the_lost_slice_recorded(tmp_path: Path) -> None:
    bad = failure("host-0", "wrong products\nTraceback", ExitCode.BAD_HOST, began=0, time=14.8)
    other = failure("host-1", "another slice", ExitCode.CRASH, began=1, time=14.7)
    (found,) = found_in(slice_lost_and_back(tmp_path, bad, other))
    assert found.cause == "host-0: wrong products"


def test_why_it_did_not_return_at_once_is_told_too(tmp_path: Path) -> None:
    again = failure("host-0", "no such row", ExitCode.CRASH, began=18, time=19.0)
    (found,) = found_in(slice_lost_and_back(tmp_path, again))
    assert found.cause == f"{UNRECORDED}; then host-0: no such row"


def test_a_slice_that_left_or_was_cut_off_or_never_came_has_another_cause(tmp_path: Path) -> None:
    left = event(15, "stop", cause="Preempted", message="SIGTERM: slice 1 left", code="PREEMPTED")
    ledgers = {
        "0-0": [
            began_slice(9, 0, at=0),
            changed(10, 0, "0 1 2", "begun"),
            changed(15.1, 4, "0 2", "lost 1"),
            changed(20, 9, "0", "lost 2"),
            changed(24, 12, "0 2", "joined 2"),
            event(40, "save", step=20),
        ],
        "0-1": [began_slice(9, 1, at=1), left],
        "0-2": [began_slice(9, 2, at=2), event(25, "restore", step=12, batch=12, donor=0), event(39, "slices_agree")],
    }
    one, two = found_in(write_run(tmp_path / "lost", ledgers, {}))
    assert (one.slice, one.until, one.cause) == (1, None, "Preempted: SIGTERM: slice 1 left")
    assert (two.slice, two.until, two.cause) == (2, 25, CUT_OFF)
    ledgers = {"0-0": [began_slice(9, 0, at=0), changed(10, 0, "0 1", "begun"), event(20, "save", step=1)]}
    (never,) = found_in(write_run(tmp_path / "late", ledgers, {}))
    assert (never.slice, never.cause, never.lost_seconds) == (2, NOT_THERE, 10)


def test_a_leader_that_was_killed_before_its_first_record_was_there_if_others_had_its_state(tmp_path: Path) -> None:
    ledgers = {
        "0-1": [
            began_slice(9, 1, at=1),
            event(10, "restore", step=0, batch=0, donor=0),
            changed(11, 8, "1 2", "lost 0"),
            event(20, "save", step=9),
        ],
        "0-2": [began_slice(9, 2, at=2), event(10, "restore", step=0, batch=0, donor=0)],
    }
    (found,) = found_in(write_run(tmp_path, ledgers, {}))
    assert (found.slice, found.since, found.cause) == (0, 11, UNRECORDED)

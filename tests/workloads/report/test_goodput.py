from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multislice_run.records.lines import FailureRecord, StepLine
from tests.workloads.report.runs import (
    began,
    crashed_and_resumed,
    event,
    failure,
    history,
    step,
    write_run,
)
from workloads.report.goodput import Cause, Goodput, goodput, lost_steps
from workloads.report.history import AttemptHistory, Event
from workloads.spec import ExitCode


def seconds_of(run: Path) -> dict[str, float]:
    """Return the seconds of each part."""
    return {part.name: part.seconds for part in goodput(history(run).starts).parts}


def test_every_second_of_a_crashed_and_resumed_run_has_its_cause(tmp_path: Path) -> None:
    found = goodput(history(crashed_and_resumed(tmp_path)).starts)
    assert {part.name: part.seconds for part in found.parts} == pytest.approx(
        {
            "waiting for hosts": 2.0,
            "start of hosts": 3.0 + 3.0,
            "compilation": 4.0 + 1.0,
            "restore": 2.0,
            "productive steps": 0.75 + 1 + 1 + 1,
            "steps waiting for the host": 0.25,
            "saves": 1.0 + 0.5,
            # These are steps 3 and 4, which were repeated, the part of step 5 that was done, and the skipped step.
            "lost work after CRASH": 1 + 1 + 1.5,
            "lost work after a step was skipped": 1.0,
            "down after CRASH": 30 - 15.5,
            "evaluation": 2.0,
            "other": 0.5,
        }
    )
    assert found.seconds == 42.0
    assert found.productive == pytest.approx(3.75 / 42)


def test_local_saves_between_steps_count_as_saves(tmp_path: Path) -> None:
    started = event(2, "run_started", run="one", outcome="new", step=0, steps=2)
    after_save = step(2, 4.75, seconds=1.0, host_seconds=0.25) | {"local_save_seconds": 0.75}
    parts = seconds_of(write_run(tmp_path, {"0-0": [began(2), started]}, {"0-0": [step(1, 3), after_save]}))
    assert (parts["saves"], parts["steps waiting for the host"]) == pytest.approx((0.75, 0.25))
    assert parts["productive steps"] == pytest.approx(1.75)


def test_the_comparison_of_slices_is_a_cause_of_its_own(tmp_path: Path) -> None:
    ledger = [began(1), event(1, "run_started", step=0), event(4, "slices_agree", step=1, seconds=2.0)]
    steps = [step(1, 2), step(2, 5.5, seconds=1.5, host_seconds=0.5)]
    spent = seconds_of(write_run(tmp_path, {"0-0": ledger}, {"0-0": steps}))
    assert (spent["comparing slices"], spent["steps waiting for the host"]) == (2.0, 0.5)


def test_rounded_times_give_the_time_of_a_step_to_no_other_cause(tmp_path: Path) -> None:
    ledger = [began(1), event(1, "run_started", step=0), event(3, "save", step=2)]
    rounded = [step(1, 1.9996, seconds=1.0), step(2, 2.5, seconds=0.5008), step(3, 3.5, seconds=0.5004)]
    spent = seconds_of(write_run(tmp_path, {"0-0": ledger}, {"0-0": rounded}))
    assert spent["productive steps"] == pytest.approx(1.9996 - 1 + 0.5004 + 0.5)
    assert spent["saves"] == 0.5
    assert "steps waiting for the host" not in spent


def test_what_a_fault_cost_is_counted_together_wherever_its_time_is_counted(tmp_path: Path) -> None:
    crash, skip = goodput(history(crashed_and_resumed(tmp_path, 3600.0, 3600.0)).starts).losses
    assert (crash.after, skip.after) == ("CRASH", "a step was skipped")
    # These are lost steps and half a step, downtime, and start, restore and compilation of the second attempt.
    parts = (crash.lost_work_seconds, crash.hung_seconds, crash.down_seconds, crash.restart_seconds)
    assert parts == pytest.approx((3.5, 0.0, 14.5, 6.0))
    assert crash.usd == pytest.approx(24.0)
    assert (skip.seconds, skip.lost_work_seconds) == (1.0, 1.0)


def test_an_unknown_price_is_in_no_sum_and_named(tmp_path: Path) -> None:
    found = goodput(history(crashed_and_resumed(tmp_path, None, 3600.0)).starts)
    assert (found.usd, found.unpriced) == (12.0, (1,))
    usd = {part.name: part.usd for part in found.parts}
    assert (usd["down after CRASH"], usd["restore"]) == (None, 2.0)


def test_a_start_on_fewer_slices_costs_as_much_less() -> None:
    facts = {"began": 0.0, "usd_per_hour": 8.0, "slices": 1, "asked_slices": 4}
    assert AttemptHistory(0, {1: (Event(0.0, "start", facts),)}).usd_per_hour == 2.0


def test_work_is_lost_after_what_the_run_went_back_for() -> None:
    """Attempt 1 continues at step 5, and attempt 2 has to repeat steps of attempt 0."""

    def start(number: int, resumed: int, steps: Sequence[int], code: ExitCode) -> AttemptHistory:
        at = 100.0 * number
        begun = (Event(at, "start", {}), Event(at + 1, "run_started", {"step": resumed}))
        done = [
            StepLine(step=step, time=at + 2 + place, step_seconds=1.0, loss=1.0) for place, step in enumerate(steps)
        ]
        end = FailureRecord("why", "host", code, at + 50)
        return AttemptHistory(number, {0: begun}, tuple(done), (end,), followed=True)

    starts = [
        start(0, 0, [1, 2, 3, 4, 5, 6], ExitCode.CRASH),
        start(1, 5, [6, 7], ExitCode.HANG),
        start(2, 3, [4, 5, 4, 5, 6, 7], ExitCode.DONE),
    ]
    assert lost_steps(starts) == {
        **dict.fromkeys([(0, 3), (0, 4)], "HANG"),
        (0, 5): "CRASH",
        **dict.fromkeys([(1, 0), (1, 1)], "HANG"),
        **dict.fromkeys([(2, 0), (2, 1)], "a rollback"),
    }


@pytest.mark.parametrize(
    ("code", "cause", "before_the_run"),
    [
        (ExitCode.HANG, Cause.HUNG, Cause.HUNG),
        (ExitCode.CRASH, Cause.LOST, Cause.START),
        (ExitCode.PREEMPTED, Cause.START, Cause.START),
    ],
)
def test_the_last_piece_of_a_start_counts_for_how_it_ended(code: ExitCode, cause: Cause, before_the_run: Cause) -> None:
    start = AttemptHistory(
        0, {0: (Event(0.0, "start", {"began": 0.0}),)}, failures=(FailureRecord("why", "host-0", code, 600.0),)
    )
    for each, expected in ((start, cause), (replace(start, ledgers={}, host_begins=(0,)), before_the_run)):
        assert [(part.cause, part.seconds) for part in goodput([each]).parts] == [(expected, 600.0)]


def test_a_start_that_got_sigterm_saves_only_what_it_has_trained(tmp_path: Path) -> None:
    stop = event(9.0, "stop", cause="Preempted", message="SIGTERM", code="PREEMPTED")
    begin = [began(0.0), event(2.0, "run_started", outcome="new", step=0, steps=9)]
    run = write_run(
        tmp_path, {"0-0": [*begin, stop], "1-0": [began(9.0), stop | {"time": 20.0}]}, {"1-0": [step(1, 12.0)]}
    )
    first, second = goodput(history(run).starts).starts
    assert {part.cause: part.seconds for part in first.parts} == {Cause.COMPILE: 9.0}
    assert {part.cause: part.seconds for part in second.parts}[Cause.SAVE] == 8.0


def resubmitted(tmp_path: Path, ending: str) -> Goodput:
    """A run of two submissions a weekend apart, for a dollar a second. The second one fails once before it opens the
    run, then trains."""
    later = 5 + 2 * 86400
    again = {**began(later + 31, 1, later + 30, 3600.0), "run_id": "second"}
    ledgers = {
        "0-0": [began(1, 0, 0, 3600.0), event(2, "run_started", step=0), event(5, "stop", code=ending)],
        "1-0": [again, event(later + 32, "run_started", step=1), event(later + 35, "stop", code="DONE")],
    }
    bad = failure("host-0", "wrong products", ExitCode.BAD_HOST, began=later, time=later + 10.0)
    run = write_run(tmp_path, ledgers, {"0-0": [step(1, 4)], "1-0": [step(2, later + 34)]}, bad)
    (tmp_path / "failures" / "job").rename(tmp_path / "failures" / "second")
    return goodput(history(run).attempts)


@pytest.mark.parametrize("ending", ["DONE", "CRASH"])
def test_the_time_between_two_submissions_belongs_to_no_job(tmp_path: Path, ending: str) -> None:
    found = resubmitted(tmp_path, ending)
    # Within the second one, the 20 seconds after its bad host count.
    assert [(start.name, start.seconds, start.usd) for start in found.starts] == [
        ("Attempt 1", 5.0, 5.0),
        ("Before attempt 2", 30.0, 30.0),
        ("Attempt 2", 5.0, 5.0),
    ]
    assert (found.seconds, found.usd) == (40.0, 40.0)
    assert [part.name for part in found.parts if part.cause is Cause.DOWN] == ["down after BAD_HOST"]


BAD_STARTS = ((0, 10), (1, 100), (2, 320))
"""Restarts before each attempt, and the time when it began."""


def test_starts_that_bad_hosts_ended_cost_what_they_took_and_are_reported_as_such(tmp_path: Path) -> None:
    """Two attempts are before the first one that opened the run, one is after an eviction."""
    code = ExitCode.BAD_HOST
    bad = [failure("host-0", "wrong products", code, began=at, time=at + 60, attempt=place) for place, at in BAD_STARTS]
    evicted = failure("host-0", "SIGTERM", ExitCode.PREEMPTED, began=200, time=220.0, attempt=2)
    ledgers = {
        "0-0": [began(201, 2, 200, 3600.0), event(205, "run_started", step=0), event(210, "save", step=1)],
        "1-0": [began(401, 3, 400, 7200.0), event(405, "run_started", step=1), event(406, "stop", code="DONE")],
    }
    run = write_run(tmp_path, ledgers, {"0-0": [step(1, 209)]}, *bad, evicted)
    found = goodput(history(run).attempts)
    assert [(start.name, start.ending, start.seconds, start.usd) for start in found.starts] == [
        ("Before attempt 1", "BAD_HOST", 90.0, 90.0),
        ("Before attempt 1", "BAD_HOST", 100.0, 100.0),
        ("Attempt 1", "PREEMPTED", 120.0, 120.0),
        ("Before attempt 2", "BAD_HOST", 80.0, 160.0),
        ("Attempt 2", "DONE", 6.0, 12.0),
    ]
    assert found.losses[0].after == "BAD_HOST"
    assert (found.losses[0].down_seconds, found.losses[0].lost_work_seconds) == (30 + 40 + 20, 0.0)
    starts = {part.name: part.seconds for part in found.parts}
    assert starts["start of hosts"] == 3 * 60 + 1 + 1


def test_work_is_lost_after_the_end_of_the_start_that_did_it_and_not_of_one_that_opened_no_run(tmp_path: Path) -> None:
    bad = failure("host-0", "wrong products", ExitCode.BAD_HOST, began=20, time=25.0, attempt=1)
    again = [began(31, 2, 30), event(32, "run_started", step=0)]
    run = write_run(tmp_path, {"0-0": [began(1)], "1-0": again}, {"0-0": [step(1, 3)]}, bad)
    assert lost_steps(history(run).attempts) == {(0, 0): "KILLED"}


times = st.floats(0, 1e6)

begins = st.fixed_dictionaries({"began": times}, optional={"usd_per_hour": st.floats(0, 1e4)})

events = st.builds(
    lambda time, name, step: Event(time, name, {"step": step}),
    times,
    st.sampled_from(
        ["restore", "compile", "run_started", "save", "slices_agree", "evaluation", "warning", "run_summary", "stop"]
    ),
    st.integers(0, 9),
)

steps = st.builds(
    lambda number, time, seconds, share, skipped: StepLine(
        step=number, time=time, step_seconds=seconds, host_seconds=seconds * share, loss=1.0, skipped=skipped
    ),
    st.integers(1, 9),
    times,
    st.floats(0, 100),
    st.floats(0, 1),
    st.booleans(),
)


def unopened(neighbour: AttemptHistory) -> st.SearchStrategy[AttemptHistory]:
    ends = st.builds(lambda code, time: FailureRecord("why", "host", code, time), st.sampled_from([23, 24, 143]), times)
    return st.builds(
        lambda begins, failures: AttemptHistory(
            neighbour.number, {}, failures=tuple(failures), host_begins=tuple(begins), neighbour=neighbour
        ),
        st.lists(st.integers(0, 1_000_000), min_size=1, max_size=2),
        st.lists(ends, min_size=1, max_size=2),
    )


@st.composite
def starts_of_a_run(draw: st.DrawFn) -> list[AttemptHistory]:
    """Draw attempts with clocks that disagree, events in any order and missing files. Some opened no run."""
    count = draw(st.integers(1, 4))
    opened = [
        AttemptHistory(
            number,
            {
                process: (
                    Event(draw(times), "start", draw(begins)),
                    *draw(st.lists(events, max_size=6)),
                )
                for process in draw(st.sets(st.integers(0, 2)))
            },
            tuple(draw(st.lists(steps, max_size=6))),
            tuple(
                FailureRecord("why", "host", code, draw(times))
                for code in draw(st.lists(st.sampled_from([1, 24, 143])))
            ),
            followed=number < count - 1,
        )
        for number in range(count)
    ]
    return [start for each in opened for start in [*draw(st.lists(unopened(each), max_size=2)), each]]


@pytest.mark.costs(cpu_seconds=8)
@given(starts_of_a_run())
def test_parts_are_positive_and_add_up_to_the_whole_in_time_and_money(starts: list[AttemptHistory]) -> None:
    found = goodput(starts)
    for spent in (found, *found.starts):
        assert all(part.seconds > 0 for part in spent.parts)
        assert sum(part.seconds for part in spent.parts) == pytest.approx(spent.seconds)
        assert sum(part.usd or 0.0 for part in spent.parts) == pytest.approx(spent.usd or 0.0)
    assert sum(start.seconds for start in found.starts) == pytest.approx(found.seconds)
    for start in found.starts:
        assert (start.usd or 0.0) == pytest.approx(start.seconds * (start.usd_per_hour or 0.0) / 3600)
    assert sum(start.usd or 0.0 for start in found.starts) == pytest.approx(found.usd or 0.0)
    assert 0 <= found.productive <= 1
    # The whole time is from the first begin to the last known event of any attempt.
    assert found.seconds >= max(0.0, starts[-1].ended - starts[0].began[0]) - 1e-6


@given(starts_of_a_run())
def test_what_faults_cost_is_part_of_the_whole_and_holds_all_lost_work(starts: list[AttemptHistory]) -> None:
    found = goodput(starts)
    assert sum(loss.seconds for loss in found.losses) <= found.seconds * (1 + 1e-9)
    lost = sum(part.seconds for part in found.parts if part.cause in (Cause.LOST, Cause.HUNG))
    assert sum(loss.lost_work_seconds + loss.hung_seconds for loss in found.losses) == pytest.approx(lost)
    assert [loss.usd or 0.0 for loss in found.losses] == sorted(
        (loss.usd or 0.0 for loss in found.losses), reverse=True
    )

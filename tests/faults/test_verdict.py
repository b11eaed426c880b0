import re
from dataclasses import replace

import pytest
from etils import epath

from multislice_run.records.lines import FailureRecord, StepLine
from tests.faults.fault import LEADER, Expected
from tests.faults.verdict import Observed, broken, event_of_kill, observe
from workloads.report.history import AttemptHistory, Event, History

STATUS = {"terminalState": "Completed", "restartsCountTowardsMax": 1}


def step(number: int, time: float, loss: float) -> StepLine:
    return StepLine(step=number, time=time, step_seconds=1.0, loss=loss)


def started_at(number: int, time: float, resumed: int) -> Event:
    return Event(time, "run_started", {"step": resumed, "began": time, "number": number})


def history(*starts: AttemptHistory) -> History:
    return History(epath.Path("run"), {}, starts, None)


def test_a_start_that_was_killed_and_one_that_went_on_are_read_together() -> None:
    first = AttemptHistory(
        0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0), step(2, 2, 4.0), step(3, 3, 3.0)), followed=True
    )
    second = AttemptHistory(1, {0: (started_at(1, 10.0, 2),)}, (step(3, 12, 3.0), step(4, 13, 2.0)))
    seen = observe(STATUS, None, history(first, second), {1: 0, 2: 1, 3: 2, 4: 3}, struck=3.5)
    assert (seen.terminal, seen.charged) == ("Completed", 1)
    assert seen.endings == ("KILLED", "no end recorded")
    assert seen.losses == {1: 5.0, 2: 4.0, 3: 3.0, 4: 2.0}
    assert (seen.disagreements, seen.batches) == ({}, (0, 1, 2, 3))
    assert (seen.lost_steps, seen.recovery_seconds) == (1, 9.5)
    assert any('"event": "run_started"' in line for line in seen.lines)


def test_steps_that_a_host_does_before_it_leaves_are_no_recovery() -> None:
    first = AttemptHistory(0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0), step(2, 2, 4.0)), followed=True)
    second = AttemptHistory(1, {0: (started_at(1, 10.0, 2),)}, (step(3, 12, 3.0),))
    assert observe({}, None, history(first, second), {}, struck=1.5).recovery_seconds == 10.5
    assert observe({}, None, history(first), {}, struck=1.5).recovery_seconds == 0.5


def test_a_skipped_step_is_no_lost_work() -> None:
    skipped = replace(step(2, 2, 4.0), loss=None, skipped=True)
    seen = observe(
        {}, None, history(AttemptHistory(0, {}, (step(1, 1, 5.0), skipped, step(3, 3, 4.0)))), {1: 0, 2: 1, 3: 2}, 0.0
    )
    assert (seen.lost_steps, seen.skipped) == (0, frozenset({2}))
    assert seen.losses == {1: 5.0, 3: 4.0}


def test_a_step_with_two_losses_is_reported() -> None:
    first = AttemptHistory(0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0),), followed=True)
    second = AttemptHistory(1, {0: (started_at(1, 10.0, 0),)}, (step(1, 12, 5.5),))
    seen = observe({}, None, history(first, second), {1: 0}, struck=1.5)
    assert seen.disagreements == {1: (5.0, 5.5)}
    assert (seen.terminal, seen.recovery_seconds) == ("running", None)


STEADY = {step: 5.0 - step / 10 for step in range(1, 25)}
KILLED = Expected(endings=frozenset({"KILLED"}))
GOOD = Observed(
    terminal="Completed",
    charged=1,
    endings=("KILLED", "DONE"),
    losses=STEADY,
    batches=tuple(range(24)),
    lost_steps=2,
    lines=('{"event": "warning", "message": "slow"}',),
    conditions=("jobset completed",),
    events=("pod research/job-slice-1-1-abcde failed with exit code 137",),
    recovery_seconds=30.0,
)


def check(expected: Expected, observed: Observed) -> tuple[str, ...]:
    return broken("job", expected, observed, STEADY)


def test_nothing_is_reported_if_everything_holds() -> None:
    assert check(KILLED, GOOD) == ()


@pytest.mark.parametrize(
    ("observed", "said"),
    [
        (replace(GOOD, terminal="Failed"), "expected the JobSet Completed, got Failed"),
        (replace(GOOD, endings=("KILLED",)), "expected 2 starts, got 1"),
        (replace(GOOD, endings=("DIVERGED", "DONE")), "expected the struck start to end as KILLED, got DIVERGED"),
        (replace(GOOD, endings=("KILLED", "PREEMPTED")), "expected the last start to end as DONE, got PREEMPTED"),
        (replace(GOOD, charged=0), "expected 1 restarts that count, got 0"),
        (replace(GOOD, lost_steps=9), "expected at most 8 steps to be done again, got 9"),
        (replace(GOOD, batches=(0, 1, 1)), "expected the batches 0, 1, 2, ... without gap or repetition"),
        (replace(GOOD, recovery_seconds=121.0), "expected training to go on within 120 s, got 121 s"),
        (replace(GOOD, recovery_seconds=None), "expected training to go on, got no further step"),
        (replace(GOOD, disagreements={9: (1.0, 2.0)}), "expected steps done twice to agree"),
        (replace(GOOD, losses=STEADY | {7: 4.3000000000000001e0 + 1e-12}), "expected the loss 4.3 at step 7"),
        (replace(GOOD, losses={}), "expected losses of 24 steps, got 0"),
    ],
)
def test_what_does_not_hold_is_reported(observed: Observed, said: str) -> None:
    (sentence,) = check(KILLED, observed)
    assert sentence.startswith(said)


def test_on_another_shape_losses_may_differ_by_what_the_entry_says() -> None:
    near = replace(GOOD, losses={step: loss * (1 + 1e-7) for step, loss in STEADY.items()})
    assert check(replace(KILLED, loss_tolerance=1e-6), near) == ()
    assert check(KILLED, near) != ()


def test_the_host_that_failed_and_its_cause_are_asked_for() -> None:
    expected = Expected(endings=frozenset({"CRASH"}), culprit="slice-1-1", cause="ValueError of {job}")
    crashed = replace(GOOD, endings=("CRASH", "DONE"))
    record = FailureRecord(host="job-slice-1-1.job", cause="ValueError of job", code=1, time=0.0)
    assert check(expected, replace(crashed, failures=(record,))) == ()
    assert check(expected, crashed) == ("expected a failure record of job-slice-1-1, got none",)
    other = replace(record, cause="KeyError: 3")
    assert check(expected, replace(crashed, failures=(other,))) == (
        "expected the cause to say 'ValueError of job', got 'KeyError: 3'",
    )


def test_demanded_messages_must_be_found() -> None:
    assert check(replace(KILLED, warning="slow", condition="completed"), GOOD) == ()
    assert check(replace(KILLED, warning="straggler"), GOOD) == (
        "expected a line of a ledger with 'straggler', got none",
    )
    assert check(replace(KILLED, condition="evicted"), GOOD) == (
        "expected a condition to say 'evicted', got ['jobset completed']",
    )


def test_the_event_that_names_a_killed_host_is_asked_for() -> None:
    assert check(replace(KILLED, killed=("slice-0-1", "slice-1-1")), GOOD) == ()
    (sentence,) = check(replace(KILLED, killed=("slice-0-1",)), GOOD)
    assert sentence.startswith("expected an event that says 'job-(slice-0-1)-")


def test_if_the_leader_is_killed_the_event_may_name_a_host_that_aborted() -> None:
    aborted = "pod research/job-slice-1-1-abcde failed with exit code 134"
    assert re.search(event_of_kill("job", (LEADER,)), aborted)
    assert not re.search(event_of_kill("job", ("slice-1-1",)), aborted)


def test_on_other_data_losses_are_not_compared() -> None:
    assert check(replace(KILLED, same_data=False), replace(GOOD, losses={step: 1.0 for step in STEADY})) == ()


def test_only_the_steps_that_are_expected_may_be_skipped() -> None:
    without = {step: loss for step, loss in STEADY.items() if step != 12}
    skipped = replace(GOOD, losses=without, skipped=frozenset({12}))
    assert check(replace(KILLED, skipped=frozenset({12})), skipped) == ()
    assert check(KILLED, skipped)[0] == "expected the skipped steps [], got [12]"


def test_up_to_a_skipped_step_losses_are_the_same_bit_for_bit() -> None:
    expected = replace(KILLED, skipped=frozenset({12}), loss_tolerance=0.1)
    without = {step: loss for step, loss in STEADY.items() if step != 12}
    later = replace(GOOD, losses=without | {13: STEADY[13] * 1.05}, skipped=frozenset({12}))
    assert check(expected, later) == ()
    before = replace(later, losses=without | {11: STEADY[11] * (1 + 1e-7)})
    assert check(expected, before)[0].startswith("expected the loss 3.9 at step 11")


def test_losses_that_a_fault_spoils_must_have_been_wrong_from_its_step_on_and_be_put_right() -> None:
    spoiled = replace(KILLED, spoiled_from=12)
    assert check(spoiled, replace(GOOD, disagreements={13: (1.0, 3.7)})) == ()
    assert check(spoiled, replace(GOOD, disagreements={11: (1.0, 3.9)}))[0].endswith("then 3.9")
    assert check(spoiled, GOOD) == ("expected losses from step 12 on to be put right, got none that were wrong",)

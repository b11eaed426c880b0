"""Outcomes read from made-up histories."""

from dataclasses import replace

from etils import epath

from chaos.observed import Told, observe
from workloads.report.history import Event, History, Start, Step

STATUS = {"terminalState": "Completed", "restarts": 2, "restartsCountTowardsMax": 1}


def step(number: int, time: float, loss: float) -> Step:
    return Step(number, time, 1.0, 0.0, loss, False, None, None, None)


def started_at(number: int, time: float, resumed: int) -> Event:
    return Event(time, "RunStarted", {"step": resumed, "began": time, "number": number})


def history(*starts: Start) -> History:
    return History(epath.Path("run"), {}, starts, None)


def test_a_start_that_was_killed_and_one_that_went_on_are_read_together() -> None:
    first = Start(0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0), step(2, 2, 4.0), step(3, 3, 3.0)), followed=True)
    second = Start(1, {0: (started_at(1, 10.0, 2),)}, (step(3, 12, 3.0), step(4, 13, 2.0)))
    seen = observe(Told(STATUS, ("all jobs completed",)), history(first, second), {1: 0, 2: 1, 3: 2, 4: 3}, struck=3.5)
    assert (seen.terminal, seen.restarts, seen.charged) == ("Completed", 2, 1)
    assert seen.endings == ("KILLED", "no end recorded")
    assert seen.losses == {1: 5.0, 2: 4.0, 3: 3.0, 4: 2.0}
    assert seen.curve == (((1, 5.0), (2, 4.0), (3, 3.0)), ((12, 3.0), (13, 2.0)))
    assert (seen.disagreements, seen.batches) == ({}, (0, 1, 2, 3))
    assert (seen.lost_steps, seen.recovery_seconds) == (1, 9.5)
    assert seen.said == ("all jobs completed",)
    assert any('"event": "RunStarted"' in line for line in seen.lines)


def test_steps_that_a_host_does_before_it_leaves_are_no_recovery() -> None:
    first = Start(0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0), step(2, 2, 4.0)), followed=True)
    second = Start(1, {0: (started_at(1, 10.0, 2),)}, (step(3, 12, 3.0),))
    assert observe(Told({}), history(first, second), {}, struck=1.5).recovery_seconds == 10.5
    assert observe(Told({}), history(first), {}, struck=1.5).recovery_seconds == 0.5


def test_a_skipped_step_is_no_lost_work() -> None:
    skipped = replace(step(2, 2, 4.0), loss=None, skipped=True)
    seen = observe(
        Told({}), history(Start(0, {}, (step(1, 1, 5.0), skipped, step(3, 3, 4.0)))), {1: 0, 2: 1, 3: 2}, 0.0
    )
    assert (seen.lost_steps, seen.skipped) == (0, frozenset({2}))
    assert seen.losses == {1: 5.0, 3: 4.0}


def test_a_step_with_two_losses_is_told() -> None:
    first = Start(0, {0: (started_at(0, 0.0, 0),)}, (step(1, 1, 5.0),), followed=True)
    second = Start(1, {0: (started_at(1, 10.0, 0),)}, (step(1, 12, 5.5),))
    seen = observe(Told({}), history(first, second), {1: 0}, struck=1.5)
    assert seen.disagreements == {1: "step 1 was 5.0, then 5.5"}
    assert (seen.terminal, seen.recovery_seconds) == ("running", None)

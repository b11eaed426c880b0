from dataclasses import replace

import pytest

from chaos.membership import Departure, Membership, broken_membership, observe_membership
from workloads.report.history import Event, Step


def change(time: float, what: str, present: int) -> Event:
    return Event(time, "SlicesChanged", {"change": what, "present": present, "asked": 3})


def steps(*times: float) -> list[Step]:
    return [Step(step=number, time=time, step_seconds=1.0, loss=1.0) for number, time in enumerate(times, 1)]


PODS = ("slice-0-0", "slice-1-0", "slice-1-0", "slice-2-0")
CHANGES = (change(0.5, "begun", 3), change(5.2, "lost 1", 2), change(9.5, "joined 1", 3))


def test_a_slice_that_is_lost_and_back_is_measured() -> None:
    seen = observe_membership(CHANGES, steps(1, 2, 3, 4, 5, 6.5, 7, 8, 9, 10), 5.1, PODS, reads=0)
    assert (seen.lost, seen.joined) == ((1,), (1,))
    assert (seen.median_seconds, seen.loss_seconds, seen.slowest_seconds) == (1, 1.5, 1.5)
    assert seen.back_seconds == pytest.approx(4.3)
    assert seen.pods == {"slice-0-0": 1, "slice-1-0": 2, "slice-2-0": 1}
    assert [*broken_membership(Departure(), seen)] == []


def test_a_slice_that_is_lost_while_it_joins_is_not_back() -> None:
    again = (*CHANGES, change(9.6, "lost 1", 2))
    assert observe_membership(again, steps(1, 2, 6, 10), 5.1, PODS, reads=0).back_seconds is None


def test_a_slice_whose_return_fails_at_first_is_measured_from_its_loss() -> None:
    again = (*CHANGES, change(9.6, "lost 1, joined 1", 3))
    seen = observe_membership(again, steps(1, 2, 6, 10, 11), 5.1, PODS, reads=0)
    assert seen.back_seconds == pytest.approx(4.3)


def test_a_loss_and_the_return_may_be_one_event() -> None:
    both = (change(0.5, "begun", 3), change(5.2, "lost 1, joined 1", 3))
    seen = observe_membership(both, steps(1, 2, 3, 4, 5, 6), 5.1, PODS, reads=0)
    assert (seen.lost, seen.joined, seen.back_seconds) == ((1,), (1,), 0)


GOOD = Membership(lost=(1,), joined=(1,), pods={"slice-0-0": 1, "slice-1-0": 2}, median_seconds=1.0, back_seconds=9.0)


@pytest.mark.parametrize(
    ("expected", "seen", "said"),
    [
        (Departure(2), GOOD, "expected the group to go on without 2 slices, got [1]"),
        (Departure(), replace(GOOD, back_seconds=None), "expected all slices to be back, got (1,) joined"),
        (Departure(), replace(GOOD, back_seconds=31.0), "expected all slices to be back within 30 s, got 31 s"),
        (Departure(), replace(GOOD, pods={"slice-0-0": 2, "slice-1-0": 2}), "expected only the pods of slices [1]"),
        (Departure(replaced=False), GOOD, "expected only the pods of slices [] to be replaced, got [1]"),
        (Departure(), replace(GOOD, loss_seconds=2.1), "expected at most 2.00 s for the step in which a slice was"),
        (Departure(), replace(GOOD, reads=3), "expected no read of a checkpoint's arrays, got 3"),
    ],
)
def test_what_does_not_hold_of_the_slices_is_reported(expected: Departure, seen: Membership, said: str) -> None:
    (sentence,) = broken_membership(expected, seen)
    assert sentence.startswith(said)


def test_a_silent_fault_may_take_until_it_is_noticed() -> None:
    silent = replace(GOOD, pods={"slice-0-0": 1}, loss_seconds=7.0)
    assert [*broken_membership(Departure(replaced=False, silent_seconds=5.0), silent)] == []

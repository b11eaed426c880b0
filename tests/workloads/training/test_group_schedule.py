"""`workloads.training.group_schedule`: what the leader decides after a step, and whose state it finds wrong."""

from collections.abc import Mapping

import pytest

from workloads.group.protocol import Value
from workloads.group.view import HostId
from workloads.spec import TrainingSpec, load_preset
from workloads.training.group_schedule import GroupSchedule

QUIET = {
    "steps": 100,
    "save_every_steps": 10,
    "save_every_minutes": 60,
    "evaluate_every_steps": 25,
    "compare_slices_every_steps": 4,
}
TRAINING: TrainingSpec = load_preset("tiny").training.model_copy(update=QUIET)


def after(step: int, *told: int, slices: int = 3, quorum: int = 2) -> Value:
    """Return the decision after a step in which the slices `told` got SIGTERM."""
    values = {
        HostId(one, 0): {"kind": "step", "step": step, "since": step - 1, "sigterm": one in told}
        for one in range(slices)
    }
    return GroupSchedule(TRAINING, quorum).decide(values)


@pytest.mark.parametrize(
    ("step", "save", "compare", "evaluate"),
    [
        (1, False, False, False),
        (4, False, True, False),
        (10, True, True, False),
        (25, False, False, True),
        (50, True, True, True),
        (100, True, True, False),
    ],
)
def test_saves_comparisons_and_evaluations_are_due_as_scheduled(step: int, save: bool, compare: bool, evaluate: bool):
    decided = after(step)

    assert (decided["save"], decided["compare"], decided["evaluate"]) == (save, compare, evaluate)
    assert decided["open"] == (not compare and not evaluate)


def test_a_slice_that_is_told_to_stop_leaves_if_enough_remain():
    decided = after(3, 1)

    assert (decided["leave"], decided["stop"], decided["save"]) == ([1], False, False)


def test_all_stop_and_save_if_too_few_would_remain():
    decided = after(3, 1, 2)

    assert (decided["leave"], decided["stop"], decided["save"]) == ([], True, True)


def test_a_save_is_due_when_the_last_one_is_too_long_ago():
    values = {HostId(0, 0): {"kind": "step", "step": 3, "since": 2, "sigterm": False}}

    often = TRAINING.model_copy(update={"save_every_minutes": 1e-9})

    assert GroupSchedule(often, 1).decide(values)["save"]


def compared(*found: Mapping[str, str]) -> Value:
    values = {
        HostId(one, 0): {"kind": "compare", "fingerprints": each, "evaluates": False} for one, each in enumerate(found)
    }
    return GroupSchedule(TRAINING, 2).decide(values)


def test_the_slice_that_differs_from_most_is_wrong():
    good, bad = {"a": "1", "b": "2"}, {"a": "1", "b": "3"}

    assert compared(good, good, good)["wrong"] == []
    decided = compared(good, bad, good)
    assert (decided["wrong"], decided["what"]) == ([1], "b")


def test_all_are_wrong_if_no_majority_agrees():
    assert compared({"a": "1"}, {"a": "2"})["wrong"] == [0, 1]

"""`chaos.faults.slices`: which slices the faults kill, by the views of a group."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, cast

import pytest

from chaos.faults.slices import RETURNS
from chaos.target import Target

FAULTS = {fault.name: fault for fault in RETURNS}


class Views:
    """A job whose newest view is the next of these at each look."""

    def __init__(self, *views: dict[str, Any]):
        self._views, self._done, self.killed = list(views), count(), list[str]()

    def view(self, job: str) -> dict[str, Any]:
        del job
        return self._views.pop(0) if len(self._views) > 1 else self._views[0]

    def jobset(self, job: str) -> dict[str, Any]:
        del job
        return {"spec": {"replicatedJobs": [{"template": {"spec": {"completions": 1}}}]}}

    def steps(self, job: str) -> Sequence[None]:
        del job
        return [None] * next(self._done)

    def send(self, number: int, job: str, *hosts: str) -> None:
        del number, job
        self.killed += hosts

    def wait(self, what: str, reached: Callable[[], bool], seconds: float) -> None:
        del seconds
        assert any(reached() for _ in range(10)), what


@pytest.mark.parametrize("name", ["slice-back", "lost-during-transfer"])
def test_the_slice_that_gave_the_state_is_killed_after_the_return_and_not_before(name: str) -> None:
    begun = {"number": 2, "slices": [0, 1, 2], "led_by": 2, "donors": [[0, 2], [1, 2]]}
    lost = {"number": 3, "slices": [1, 2], "led_by": 2, "donors": []}
    back = {"number": 4, "slices": [0, 1, 2], "led_by": 2, "donors": [[0, 1]]}
    views = Views(begun, begun, begun, lost, back, lost)
    FAULTS[name].strike(cast(Target, views), "job")
    assert views.killed == ["slice-0-0", "slice-1-0"]

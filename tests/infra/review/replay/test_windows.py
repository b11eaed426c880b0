"""Windows of events that real Kueue decided: a simulation of each from its begin has the same holders."""

import pytest

from sandbox.programs import versions
from tests.infra.review.replay.windows import EVENTS, RECORD, Window, agreement, read

AGREEMENT = 0.99


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return read(RECORD)[1]


def test_the_record_is_of_the_kueue_that_the_sandbox_runs(windows: list[Window]) -> None:
    decided, _ = read(RECORD)
    assert decided == versions()["kueue"], "record again with: python -m tests.infra.review.replay.windows"
    assert sum(len(window.turns) == EVENTS for window in windows) >= 20


def test_replayed_windows_have_the_holders_that_kueue_chose(windows: list[Window]) -> None:
    differing = {window.name: window.differing() for window in windows}
    assert agreement(windows) >= AGREEMENT, differing


def test_a_record_with_another_holder_is_found(windows: list[Window]) -> None:
    first, *others = windows[0].turns
    changed = windows[0].model_copy(update={"turns": (first.model_copy(update={"holders": {"x": ("y",)}}), *others)})
    assert 0 in changed.differing()

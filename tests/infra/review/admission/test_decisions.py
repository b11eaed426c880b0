"""Decisions of real Kueue, replayed: the rehearsal of each is what Kueue did."""

import pytest

from benchmarks import kueue_decisions
from benchmarks.kueue_decisions import RECORD, RECORD_AGAIN, Decision
from sandbox.programs import versions

PARTS = 4


@pytest.fixture(scope="module")
def decisions() -> list[Decision]:
    return kueue_decisions.read(RECORD)[1]


def test_the_kueue_that_decided_is_the_one_that_the_sandbox_runs() -> None:
    (decided, _), runs = kueue_decisions.read(RECORD), versions()["kueue"]
    assert decided == runs, f"Kueue {decided} decided, and the sandbox runs Kueue {runs}; {RECORD_AGAIN}"


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_rehearsed_is_what_kueue_did(decisions: list[Decision], part: int) -> None:
    differing = [str(decision) for decision in decisions[part::PARTS] if not decision.agrees]
    assert not differing, "\n".join(differing)

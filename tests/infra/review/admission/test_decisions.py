"""Decisions of real Kueue, replayed: the rehearsal of each is what Kueue did."""

from pathlib import Path

import pytest

from benchmarks import kueue_decisions
from benchmarks.kueue_decisions import RECORD, RECORD_AGAIN, Decision, StaleRecord, kueue

PARTS = 4


@pytest.fixture(scope="module")
def decisions() -> list[Decision]:
    return kueue_decisions.read(RECORD)[1]


def test_the_kueue_that_decided_is_the_one_that_the_sandbox_runs() -> None:
    decided, _ = kueue_decisions.read(RECORD)
    assert decided == kueue(), f"Kueue {decided} decided, and the sandbox runs Kueue {kueue()}; {RECORD_AGAIN}"


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_rehearsed_is_what_kueue_did(decisions: list[Decision], part: int) -> None:
    differing = [str(decision) for decision in decisions[part::PARTS] if not decision.agrees]
    assert not differing, "\n".join(differing)


def test_decisions_that_are_written_again_are_the_same(decisions: list[Decision], tmp_path: Path) -> None:
    kueue_decisions.write(tmp_path / "again", kueue(), decisions)
    assert (tmp_path / "again").read_text().splitlines()[1:] == RECORD.read_text().splitlines()[1:]


def test_a_record_of_other_fields_is_refused_with_the_command_that_records_again(tmp_path: Path) -> None:
    head, line, *_ = RECORD.read_text().splitlines()
    (tmp_path / "old").write_text(f"{head}\n{line.replace('"queued_at"', '"created_at"')}\n")
    with pytest.raises(StaleRecord, match="python -m benchmarks.kueue_trials"):
        kueue_decisions.read(tmp_path / "old")
    assert kueue_decisions.names(tmp_path / "old", fair_sharing=False) == ["c332"]

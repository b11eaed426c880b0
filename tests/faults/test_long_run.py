"""Random faults are drawn by their seed."""

from dataclasses import replace
from itertools import islice
from typing import cast

import pytest

from multislice_run.records.lines import FailureRecord
from tests.chain.stack import Chain
from tests.faults import long_run
from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Expected, Fault
from tests.faults.long_run import Draw, Plan, draws, report, verdict_of
from tests.faults.verdict import Observed

KNOWN = {fault.name: fault for fault in CATALOGUE}


def drawn(seed: int) -> list[Draw]:
    return [*islice(draws(seed), 60)]


def test_a_seed_gives_the_same_faults_at_the_same_moments() -> None:
    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)


def test_faults_of_all_kinds_strike_at_starts_and_among_steps() -> None:
    assert {"follower-killed", "host-preempted", "host-stopped"} <= {draw.fault.name for draw in drawn(1)}
    assert {draw.steps == 0 for draw in drawn(1)} == {True, False}


def test_faults_that_were_asked_for_strike_in_turns_among_steps() -> None:
    asked = [KNOWN["pod-lost"], KNOWN["follower-killed"]]
    found = [*islice(draws(1, asked), 4)]
    assert [draw.fault for draw in found] == asked * 2
    assert all(draw.steps for draw in found)


def test_a_strike_that_finds_no_process_does_not_count(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def misses(_: Chain, job: str) -> None:
        raise ProcessLookupError(job)

    def hits(_: Chain, job: str) -> None:
        pass

    drawn_ones = [Draw(Fault(strike.__name__, "", Expected(), strike), 0, 0) for strike in (misses, hits, misses)]
    monkeypatch.setattr(long_run, "draws", lambda *_: drawn_ones)
    monkeypatch.setattr(long_run, "_moment", lambda *_: True)
    monkeypatch.setattr(long_run, "_last_step", lambda *_: 5)
    strikes = [*long_run.strike_at_random(cast(Chain, None), "random", Plan(1, 1, 100))]
    assert ([strike.fault.name for strike in strikes], capsys.readouterr().out) == (["hits"], "1: hits at step 5\n")


STRUCK = (KNOWN["follower-killed"], KNOWN["host-preempted"])
STEADY = {1: 5.0, 2: 4.0}
SURVIVED = Observed(
    terminal="Completed",
    endings=("KILLED", "PREEMPTED", "DONE"),
    failures=(FailureRecord(host="random-1-slice-0-0", cause="another host is gone", code=134, time=1.0),),
    losses=STEADY,
    batches=(0, 1),
    charged=1,
    recovery_seconds=30.0,
)


def test_a_job_that_survives_its_faults_holds_with_their_records() -> None:
    assert verdict_of("random-1", STRUCK, SURVIVED, {0: 20}, STEADY) == ()


@pytest.mark.parametrize(
    ("seen", "lost", "said"),
    [
        (replace(SURVIVED, endings=("KILLED", "CRASH", "DONE")), {}, "expected starts to end as"),
        (replace(SURVIVED, endings=("KILLED", "PREEMPTED", "KILLED", "DONE")), {}, "expected at most 3 starts, got 4"),
        (replace(SURVIVED, charged=2), {}, "expected at most 1 restarts that count, got 2"),
        (SURVIVED, {0: 101}, "expected at most 100 steps of a start to be done again, got 101"),
        (replace(SURVIVED, losses={1: 5.0, 2: 4.5}), {}, "expected the loss 4.0 at step 2, got 4.5"),
        (replace(SURVIVED, terminal="Failed"), {}, "expected the JobSet Completed, got Failed"),
    ],
)
def test_what_a_long_run_must_not_do_is_reported(seen: Observed, lost: dict[int, int], said: str) -> None:
    assert any(sentence.startswith(said) for sentence in verdict_of("random-1", STRUCK, seen, lost, STEADY))


def test_the_report_says_where_the_time_went_and_which_faults_struck() -> None:
    strikes = [("follower-killed", 9.0), ("host-stopped", None), ("follower-killed", 10.0)]
    lines = report(strikes, 2.0, SURVIVED, {"productive steps": 90.0, "down after KILLED": 30.0}).splitlines()
    assert lines[0].startswith("Completed: 3 random faults in 2 minutes, 2 steps, 3 attempts, 1 counted restarts,")
    rows = {"| `follower-killed` | 2 | 9.5 (9.0 to 10.0) |", "| `host-stopped` | 1 | - |"}
    assert rows | {"| down after KILLED | 30 | 25.0 % |"} <= {*lines}

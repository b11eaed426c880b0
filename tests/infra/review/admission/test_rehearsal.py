"""Why a workload is admitted or waits; what Kueue decides in general is replayed in `test_decisions`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from infra.review.admission.rehearsal import Loan, Verdict, rehearse
from tests.infra.recording import ROOT
from tests.infra.review.admission.situations import limited, queue, running, situation, waiting

OWN, LENDER = queue("a", {"x": 16}), queue("b", {"x": 16}, checked_flavors={"x"})
CASES = {
    "borrows": (situation(OWN, LENDER), waiting("new", "a", 24)),
    "preempts": (
        situation(OWN, running("old", "a", "x", 16, priority=100)),
        waiting("new", "a", 8, priority=1000),
    ),
    "waits": (situation(OWN, *(running(f"old{index}", "a", "x", 2) for index in range(8))), waiting("new", "a", 16)),
    "never": (situation(OWN), waiting("new", "a", 32)),
    "waits for hosts": (situation(LENDER), waiting("new", "b", 8)),
}


def test_the_first_line_says_the_outcome_and_the_others_why(accepted_golden: Callable[[Path, str], None]) -> None:
    lines: list[str] = []
    for name, case in CASES.items():
        verdict = rehearse(*case)
        assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict
        lines += [f"# {name}", *verdict.lines, ""]
    accepted_golden(ROOT / "tests" / "golden" / "verdicts.txt", "\n".join(lines))


A, B = queue("a", {"x": 16}), queue("b", {"x": 16})


def test_what_is_borrowed_is_what_the_own_quota_does_not_cover() -> None:
    verdict = rehearse(
        situation(A, B, running("old", "a", "x", 8), running("other", "b", "x", 4)), waiting("new", "a", 16)
    )
    assert verdict.outcome == "admitted"
    assert verdict.borrowed == (Loan(flavor="x", chips=8, idle={"b": 12}),)


def test_only_lent_chips_of_a_lender_are_reported() -> None:
    lender = queue("b", {"x": limited("x", 16, lend=4)})
    verdict = rehearse(situation(A, lender), waiting("new", "a", 20))
    assert verdict.borrowed == (Loan(flavor="x", chips=4, idle={"b": 4}),)


def test_queues_that_preempt_each_other_forever_are_reported() -> None:
    lender, borrower = queue("a", {"x": 8}), queue("b", {"x": 8})
    jobs = [waiting("large", "a", 16, priority=500), waiting("small", "a", 8, priority=100)]
    verdict = rehearse(situation(lender, borrower, *jobs, fair_sharing=True), waiting("new", "b", 12))
    assert verdict.preempts_in_circles
    assert "workloads of these queues preempt each other in turn, without end" in verdict.lines


def test_an_unknown_queue_is_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="expected one of the queues a, b for new, got 'c'"):
        rehearse(situation(A, B), waiting("new", "c", 8))

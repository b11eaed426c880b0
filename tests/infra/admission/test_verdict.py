"""A verdict as data and in words."""

import pytest

from infra.admission.rehearsal import Verdict, rehearse
from infra.admission.situation import Situation, Workload
from tests.infra.admission.situations import queue, running, situation, waiting

OWN, LENDER = queue("a", {"x": 16}), queue("b", {"x": 16}, checked_flavors={"x"})
BORROWS = situation(OWN, LENDER), waiting("new", "a", 24)
PREEMPTS = situation(OWN, running("old", "a", "x", 16, priority=100)), waiting("new", "a", 8, priority=1000)
WAITS = situation(OWN, *(running(f"old{index}", "a", "x", 2) for index in range(8))), waiting("new", "a", 16)
NEVER = situation(OWN), waiting("new", "a", 32)


@pytest.mark.parametrize(
    ("case", "lines"),
    [
        (
            BORROWS,
            [
                "new (24 chips, priority 500) is admitted at once, on x",
                "borrows 8 chips of x (idle and lent: b 16)",
            ],
        ),
        (
            PREEMPTS,
            [
                "new (8 chips, priority 1000) preempts 1 running, then is admitted on x",
                "preempts old (16 chips, priority 100, less urgent in the same queue)",
                "x: needs 8 chips, 0 of at most 16 are free",
            ],
        ),
        (
            WAITS,
            [
                "new (16 chips, priority 500) waits: queue a is short of chips",
                "x: needs 16 chips, 0 of at most 16 are free",
                "held by " + ", ".join(f"old{index} (2 chips, priority 500)" for index in range(5)) + " and 3 more",
            ],
        ),
        (
            NEVER,
            [
                "new (32 chips, priority 500) is never admitted by queue a",
                "x: needs 32 chips, and the queue can never use more than 16",
            ],
        ),
        (
            (situation(LENDER), waiting("new", "b", 8)),
            [
                "new (8 chips, priority 500) has its quota at once, on x, and waits for hosts",
                "has quota of x, then waits until its hosts have come",
            ],
        ),
    ],
)
def test_the_first_line_says_the_outcome_and_the_others_why(case: tuple[Situation, Workload], lines: list[str]) -> None:
    assert list(rehearse(*case).lines) == lines


@pytest.mark.parametrize("case", [BORROWS, PREEMPTS, WAITS, NEVER])
def test_a_verdict_goes_to_json_and_back(case: tuple[Situation, Workload]) -> None:
    verdict = rehearse(*case)
    assert Verdict.model_validate_json(verdict.model_dump_json()) == verdict

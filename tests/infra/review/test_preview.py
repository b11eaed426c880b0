"""Previews as tables and comments."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.review.preview import MAX_CHARACTERS, comment, mark, preview_answers, preview_tables
from infra.review.review import Previewed
from infra.review.table import as_text
from tests.infra.recording import ROOT
from tests.infra.review.previews import POOL, change, finding, losing, passing


def show(previewed: Previewed, *, verbose: bool = False) -> str:
    return as_text([*preview_answers(previewed), *preview_tables(previewed, verbose=verbose)])


def verdict(previewed: Previewed) -> str:
    (*_, last) = preview_answers(previewed)
    return last.verdict


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        ({}, "passes"),
        ({"changes": (change("delete", POOL, "a"),)}, "passes, but deletes 1 resource"),
        ({"findings": (finding("few", "advisory", None),)}, "passes"),
        ({"findings": (finding("few", "mandatory", None),) * 2}, "REFUSED: 1 mandatory rule broken: few"),
        ({"errors": ("no quota",)}, "REFUSED: the engine cannot execute this plan"),
        ({"review": None, "errors": ("no program",)}, "REFUSED: the engine cannot execute this plan"),
    ],
)
def test_the_verdict_is_that_of_engine_rules_and_review(difference: dict[str, object], expected: str) -> None:
    previewed = passing().model_copy(update=difference)
    assert verdict(previewed) == expected
    assert previewed.passes == expected.startswith("passes")


def test_a_plan_that_up_refuses_is_not_simply_passed() -> None:
    review = passing().review
    assert review
    unready = passing().model_copy(update={"review": review.model_copy(update={"refused": ("cloud.project: ...",)})})
    (*_, last) = preview_answers(unready)
    assert (last.state, unready.passes) == ("notable", True)
    assert last.verdict == "the plan is valid, but `up` refuses this stack: correct cloud.project: ..."


@pytest.mark.parametrize("difference", [{"errors": ("no quota",)}, {"review": None, "errors": ("no program",)}])
def test_nothing_is_said_of_what_a_refused_plan_did_not_come_to(difference: dict[str, object]) -> None:
    refused = passing().model_copy(update={"changes": (), **difference})
    tables = preview_tables(refused, verbose=False)
    assert all(table.state != "good" for table in tables if table.title in ("Rules", "Changes"))
    assert "no rule is broken" not in show(refused)
    assert "0 unchanged" not in show(refused)


def test_a_job_that_is_never_admitted_does_not_go() -> None:
    review = passing().review
    assert review
    (job,) = review.jobs
    refused = job.model_copy(update={"admission": job.admission.model_copy(update={"outcome": "never"})})
    never = review.model_copy(update={"jobs": (refused,)})
    never_runs = passing().model_copy(update={"review": never})
    assert verdict(never_runs) == "NO: the plan is valid, but tiny is never admitted"


def test_every_error_is_shown_unchanged() -> None:
    refused = passing().model_copy(update={"review": None, "errors": ("cluster: quota [8] is used up", "no disk")})
    assert "Errors  2 errors of the engine\ncluster: quota [8] is used up\nno disk" in show(refused)
    assert [answer.title for answer in preview_answers(refused)] == ["Verdict"]


GOLDEN = ROOT / "tests" / "golden" / "preview-comment.md"


def test_the_comment_reads_as_it_was_accepted() -> None:
    if os.environ.get("UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(f"{comment(losing())}\n")
    assert f"{comment(losing())}\n" == GOLDEN.read_text()


@pytest.mark.costs(cpu_seconds=8)
@settings(deadline=None)
@given(
    operation=st.sampled_from(["create", "delete", "update"]),
    count=st.integers(0, 3000),
    length=st.integers(1, 200),
    rules=st.integers(0, 100),
)
def test_github_takes_it_and_finds_it_whatever_the_size_of_the_stack(
    operation: str, count: int, length: int, rules: int
) -> None:
    changes = tuple(change(operation, POOL, f"{'n' * length}-{index}") for index in range(count))
    broken = tuple(finding(f"rule-{index}", "mandatory", None) for index in range(rules))
    text = comment(passing().model_copy(update={"changes": changes, "findings": broken}))
    assert text.startswith(f"{mark('dev')}\n### Preview of dev\n")
    assert len(text) <= MAX_CHARACTERS < 65_536
    assert text.count("<details>") == text.count("</details>")
    whole = all(f"-{index}" in text for index in range(count))
    assert whole or "**CUT HERE: this comment would have " in text

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.review.preview import MOST_CHARACTERS, comment, mark
from tests.infra.recording import ROOT
from tests.infra.review.previews import POOL, change, finding, losing, passing

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
    assert text.startswith(f"{mark('preview', 'dev')}\n### Preview of dev\n")
    assert len(text) <= MOST_CHARACTERS < 65_536
    assert text.count("<details>") == text.count("</details>")
    whole = all(f"-{index}" in text for index in range(count))
    assert whole or "**CUT HERE: this comment would have " in text

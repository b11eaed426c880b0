"""docs/comparison.md claims nothing that no test shows, and docs/limits.md no number that the sources have not."""

import re

import pytest

from cli.environments.derivation import LONGEST
from tests.documents.named_tests import source_of
from tests.documents.pages import DOCS, ROOT
from workloads.call.parcel import MOST_BYTES
from workloads.spec.pod import BAD_HOST_CHARACTERS
from workloads.spec.slices import MOST_DEVICES, MOST_SLICES

TEXT = (DOCS / "comparison.md").read_text()
LIMITS = (DOCS / "limits.md").read_text()
CELLS = [row.split(" | ") for row in re.findall(r"^\| ([^-].*?) \|$", TEXT, re.MULTILINE) if row.count(" | ") == 7]
CLAIMED = [(cells[0], cells[6], cells[7].strip("` ")) for cells in CELLS]
OURS = re.findall(r"^\| ([^|`]+) \| `(tests/[^`]+)` \|$", TEXT, re.MULTILINE)


def test_there_are_claims() -> None:
    assert len(CLAIMED) > 35
    assert len(OURS) > 3


@pytest.mark.parametrize(("feature", "here", "shown_by"), CLAIMED, ids=[claim[0] for claim in CLAIMED])
def test_what_is_here_is_shown_by_a_test_that_exists(feature: str, here: str, shown_by: str) -> None:
    assert here in ("yes", "part", "no")
    assert (source_of(shown_by) is not None) == (here != "no"), f"{feature}: {shown_by}"


@pytest.mark.parametrize(("feature", "shown_by"), OURS)
def test_what_only_is_here_is_shown_by_a_test_that_exists(feature: str, shown_by: str) -> None:
    assert source_of(shown_by) is not None


def test_of_others_it_says_yes_part_no_or_that_nobody_can_tell() -> None:
    assert {cell for cells in CELLS for cell in cells[1:6]} <= {"yes", "part", "no", "?"}


def test_every_tool_of_the_table_says_when_it_was_read() -> None:
    (head,) = re.findall(r"^\| \| (.+) \| here \| what shows it \|$", TEXT, re.MULTILINE)
    read = dict(re.findall(r"^\| \[(\w+)\]\([^)]+\) \| [^|]+ \| ([^|]+) \|$", TEXT, re.MULTILINE))
    assert set(read) == set(head.split(" | "))
    assert all(re.search(r"20\d\d", when) for when in read.values())


def test_a_test_that_is_gone_would_be_found() -> None:
    assert source_of("tests/documents/test_comparison.py::test_there_are_claims")
    assert source_of("tests/documents/test_comparison.py::test_nobody_wrote") is None
    assert source_of("tests/documents/nowhere.py") is None


def test_limits_are_those_of_the_sources() -> None:
    limits = dict(re.findall(r"^\| ([^|]+) \| ([^|]+) \| `", LIMITS, re.MULTILINE))
    assert limits["slices of a job"] == str(MOST_SLICES)
    assert limits["devices of a job"] == str(MOST_DEVICES)
    assert limits["lifetime of an environment"] == f"{LONGEST.days} days"
    assert limits["reason of a bad host's mark"] == f"{BAD_HOST_CHARACTERS} characters"
    assert limits["what a call of a function carries or brings back"] == f"{MOST_BYTES >> 20} MiB"
    assert all((ROOT / path).exists() for path in re.findall(r"\| `([\w/.]+)` \|$", LIMITS, re.MULTILINE))

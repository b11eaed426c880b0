"""docs/explanation/reliability.md: what people wrote there is what catalogue and trainer say, the rest is what was
measured."""

import re
from functools import cache

import pytest

from chaos.faults import CATALOGUE
from tests.chaos.known import HELD
from tests.documents import reliability_reference as reference
from tests.documents.pages import DOCS, hold
from workloads.report.history import KILLED, LAST
from workloads.spec import ExitCode

DOCUMENT = DOCS / "explanation" / "reliability.md"
KNOWN = {fault.name: fault for fault in CATALOGUE}


@cache
def written() -> str:
    """What people wrote."""
    return reference.without_made_parts(DOCUMENT.read_text())


def section(title: str) -> str:
    return written().partition(f"## {title}\n")[2].partition("\n## ")[0]


def endings() -> set[str]:
    """What the table names as endings of attempts."""
    rows = re.findall(
        r"^\| (?!Failure|-)[^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$", section("When a job stops"), re.MULTILINE
    )
    return codes(" ".join(rows))


def names(text: str) -> list[str]:
    return [name for name in re.findall(r"`([a-z-]+)`", text) if name in KNOWN]


def test_exit_codes_are_those_of_the_enum() -> None:
    hold(DOCUMENT, reference.with_codes(DOCUMENT.read_text()))


def test_the_tables_are_made_of_what_was_measured() -> None:
    hold(DOCUMENT, reference.with_faults(DOCUMENT.read_text(), reference.measured()))
    hold(DOCUMENT, reference.with_long_runs(DOCUMENT.read_text()))


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="once each"):
        reference.with_faults("# Faults\n", (HELD,))


@pytest.mark.parametrize(
    ("title", "alone"), [("A long run", False), ("A long run of slices that restart one by one", True)]
)
def test_what_strikes_a_long_run_is_as_written(title: str, alone: bool) -> None:
    strikes = [fault.name for fault in CATALOGUE if fault.anytime and bool(fault.expected.departure) == alone]
    assert names(section(title)) == strikes


def test_every_ending_has_its_row() -> None:
    assert endings() == {*ExitCode.__members__, KILLED, LAST}


def test_every_fault_ends_in_a_way_that_the_table_names() -> None:
    assert frozenset().union(*(fault.expected.endings for fault in CATALOGUE)) <= endings()


def codes(text: str) -> set[str]:
    return set(re.findall(rf"`([A-Z_]+|{LAST})`", text))

"""docs/explanation/reliability.md: what people wrote there is what catalogue and trainer say, the rest is what was
measured."""

import re
from collections import Counter
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


def endings() -> dict[str, dict[str, str]]:
    """What is said of each way to stop, by its title and the word that the line begins with."""
    parts = re.split(r"^### (.*)\n", section("When a job stops"), flags=re.MULTILINE)[1:]
    return {
        title: dict(re.findall(r"^- \*\*(.*?)\*\* (.*)$", body, re.MULTILINE))
        for title, body in zip(parts[::2], parts[1::2], strict=True)
    }


def names(text: str) -> list[str]:
    return [name for name in re.findall(r"`([a-z-]+)`", text) if name in KNOWN]


def test_exit_codes_are_those_of_the_enum() -> None:
    hold(DOCUMENT, reference.with_codes(DOCUMENT.read_text()))


def test_the_tables_are_made_of_what_was_measured() -> None:
    hold(DOCUMENT, reference.with_faults(DOCUMENT.read_text(), reference.measured()))
    hold(DOCUMENT, reference.with_long_run(DOCUMENT.read_text(), reference.long_run()))


def test_a_document_without_the_marks_is_refused() -> None:
    with pytest.raises(ValueError, match="once each"):
        reference.with_faults("# Faults\n", (HELD,))


def test_what_strikes_the_long_run_is_as_written() -> None:
    assert names(section("A long run")) == [fault.name for fault in CATALOGUE if fault.anytime]


def test_every_fault_and_every_exit_code_has_its_section() -> None:
    tried = Counter(name for lines in endings().values() for name in names(lines["Tested by"]))
    assert tried == Counter(fault.name for fault in CATALOGUE)
    ended = {name for lines in endings().values() for name in codes(lines["Ending"])}
    assert ended == {*ExitCode.__members__, KILLED, LAST}


def codes(text: str) -> list[str]:
    return re.findall(rf"`([A-Z_]+|{LAST})`", text)


@pytest.mark.parametrize(("title", "lines"), endings().items(), ids=endings())
def test_a_section_ends_as_its_entries_demand(title: str, lines: dict[str, str]) -> None:
    assert [*lines] == ["Ending", "Message", "Effect", "Action", "Tested by"]
    for name in names(lines["Tested by"]):
        assert KNOWN[name].expected.endings <= set(codes(lines["Ending"]))

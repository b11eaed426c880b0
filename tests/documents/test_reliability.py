"""docs/explanation/reliability.md: what people wrote there is what the catalogue and the trainer say."""

import re

from tests.documents.pages import DOCS
from tests.faults.catalogue import CATALOGUE
from workloads.report.history import KILLED, LAST
from workloads.spec import ExitCode

KNOWN = {fault.name for fault in CATALOGUE}


def section(title: str) -> str:
    """What people wrote below a heading."""
    text = (DOCS / "explanation" / "reliability.md").read_text()
    return text.partition(f"## {title}\n")[2].partition("\n## ")[0]


def endings() -> set[str]:
    """What the table names as endings of attempts."""
    rows = re.findall(
        r"^\| (?!Failure|-)[^|]+ \| ([^|]+) \| [^|]+ \| [^|]+ \|$", section("When a job stops"), re.MULTILINE
    )
    return set(re.findall(rf"`([A-Z_]+|{LAST})`", " ".join(rows)))


def test_what_strikes_a_long_run_is_as_written() -> None:
    named = [name for name in re.findall(r"`([a-z-]+)`", section("A long run")) if name in KNOWN]
    assert named == [fault.name for fault in CATALOGUE if fault.anytime]


def test_every_ending_has_its_row() -> None:
    assert endings() == {*ExitCode.__members__, KILLED, LAST}


def test_every_fault_ends_in_a_way_that_the_table_names() -> None:
    assert frozenset().union(*(fault.expected.endings for fault in CATALOGUE)) <= endings()

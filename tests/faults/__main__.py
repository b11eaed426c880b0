"""`make faults`: inject every fault of the catalogue into a job in the sandbox, or those that pytest's `-k` selects.

A run of the whole catalogue on committed sources writes the tables of docs/reference/faults.md.
"""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

# Before `tests/conftest.py`, nothing may import Pulumi. So this module imports the catalogue only after the tests.
FOLDER = Path(__file__).parent
_DIRTY = "-dirty"


class Results:
    """A plugin of pytest that keeps the cells of each fault."""

    def __init__(self) -> None:
        self.cells: dict[str, Sequence[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep what the test of a fault recorded, or why it failed."""
        from tests.faults import page

        recorded = dict(report.user_properties)
        if report.when == "call" and isinstance(name := recorded.get("fault"), str):
            errors = [line[1:].strip() for line in report.longreprtext.splitlines() if line.startswith("E ")]
            found = recorded.get("cells")
            self.cells[name] = found if isinstance(found, tuple) else page.failed_cells(" ".join(errors[:1]))


def main(arguments: Sequence[str]) -> int:
    """Run the tests of the catalogue, print the results, and write the page. Return the exit status of pytest."""
    commit, began, results = _commit(), time.time(), Results()
    status = pytest.main([str(FOLDER / "test_faults.py"), "-v", *arguments], plugins=[results])
    from tests.faults import page
    from tests.faults.catalogue import CATALOGUE

    print("\n".join(page.row(name, cells) for name, cells in results.cells.items()))
    written = page.DOCUMENT.relative_to(FOLDER.parents[1])
    if results.cells.keys() != {fault.name for fault in CATALOGUE}:
        print(f"{written} is unchanged: only a run of the whole catalogue writes it")
    elif commit.endswith(_DIRTY):
        print(f"{written} is unchanged: commit the sources, and run `make faults` again")
    else:
        minutes = (time.time() - began) / 60
        page.DOCUMENT.write_text(page.with_run(page.DOCUMENT.read_text(), results.cells, commit, minutes))
        print(f"wrote {written}")
    return int(status)


def _commit() -> str:
    """Return the commit of the sources, marked if they differ from it."""
    command = ["git", "-C", str(FOLDER), "describe", "--always", f"--dirty={_DIRTY}", "--exclude=*"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

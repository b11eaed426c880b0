"""`make faults`: what it keeps of each test, and when it writes the page."""

import subprocess
import sys

import pytest

from tests.faults.__main__ import FOLDER, Results
from tests.faults.catalogue import CATALOGUE

CELLS = ("2", "31 s", "1", "Completed: KILLED, DONE", "passed")


def report(error: str | None, *recorded: tuple[str, object]) -> pytest.TestReport:
    outcome = "failed" if error else "passed"
    return pytest.TestReport("test", ("", 0, ""), {}, outcome, error, "call", user_properties=recorded)


def test_a_fault_has_the_cells_that_its_test_recorded_or_the_error_that_ended_it() -> None:
    results = Results()
    results.pytest_runtest_logreport(report(None, ("fault", "leader-killed"), ("cells", CELLS)))
    results.pytest_runtest_logreport(report("code\nE   NotInTime: expected x\nE   and y", ("fault", "etcd-killed")))
    results.pytest_runtest_logreport(report(None))
    failed = ("-", "-", "-", "-", "failed: NotInTime: expected x")
    assert results.cells == {"leader-killed": CELLS, "etcd-killed": failed}


@pytest.mark.costs(cpu_seconds=20)
def test_a_part_of_the_catalogue_is_selected_by_name_and_leaves_the_page_as_it_is() -> None:
    command = [sys.executable, "-m", "tests.faults", "--collect-only", "-q", "-k", "leader-killed or host-slow"]
    ended = subprocess.run(command, cwd=FOLDER.parents[1], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "faults.md is unchanged: only a run of the whole catalogue writes it" in ended.stdout
    assert f"2/{len(CATALOGUE)} tests collected" in ended.stdout

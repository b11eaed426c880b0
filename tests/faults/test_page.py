"""The tables of faults: one run fills them, and the catalogue says which rows there are."""

from tests.faults import page
from tests.faults.catalogue import CATALOGUE
from tests.faults.verdict import Observed

EMPTY = f"# Faults\n{page.BEGIN}{page.END}"
SEEN = Observed(terminal="Completed", charged=1, endings=("KILLED", "DONE"), lost_steps=2, recovery_seconds=31.4)
PASSED = page.cells(SEEN, ())
MEASURED = {fault.name: PASSED for fault in CATALOGUE}


def rows(document: str) -> list[str]:
    return [line for line in document.splitlines() if line.startswith("| `")]


def test_without_a_run_every_fault_has_a_row_that_is_not_measured() -> None:
    found = rows(page.with_catalogue(EMPTY))
    assert len(found) == len(CATALOGUE)
    assert all(row.endswith("| not measured |") for row in found)


def test_a_run_fills_each_row_and_names_its_commit() -> None:
    broken = {"leader-killed": page.cells(SEEN, ["expected a|b\nand its logs", "expected c"])}
    document = page.with_run(EMPTY, MEASURED | broken, "abc1234", 46.3)
    found = rows(document)
    killed = "| 2 | 31 s | 1 | Completed: KILLED, DONE |"
    assert f"| `follower-killed` | the trainer of a host that leads nothing is killed {killed} passed |" in found
    assert f"| `leader-killed` | the trainer of the leading host is killed {killed} expected a/b; expected c |" in found
    assert (
        f"{len(found) - 1} of {len(found)} faults passed in one run of 46 minutes at the commit `abc1234`." in document
    )


def test_what_a_run_wrote_stays_until_the_next_one() -> None:
    written = page.with_run(EMPTY, MEASURED, "abc1234", 46.3)
    assert page.with_catalogue(written) == written


def test_a_fault_that_was_added_since_the_run_is_not_measured_and_one_that_is_gone_has_no_row() -> None:
    known = {"gone": PASSED} | {name: cells for name, cells in MEASURED.items() if name != "host-slow"}
    written = page.with_run(EMPTY, MEASURED, "abc1234", 46.3)
    before = written.replace(page.row("host-slow", PASSED), f"| `gone` | a fault of the past | {' | '.join(PASSED)} |")
    found = rows(page.with_catalogue(before))
    assert len(found) == len(known)
    assert [row for row in found if "not measured" in row] == [page.row("host-slow", page.NOT_MEASURED)]


def test_a_job_that_never_opened_its_run_and_one_that_was_not_observed_say_so() -> None:
    assert page.cells(Observed(terminal="Failed"), ())[1:4] == ("-", "0", "Failed: before a run was open")
    assert page.failed_cells("NotInTime: expected x\nlogs") == ("-", "-", "-", "-", "failed: NotInTime: expected x")

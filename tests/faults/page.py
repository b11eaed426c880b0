"""The tables of faults in docs/reference/faults.md. One run of the whole catalogue fills it. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from sandbox.daemon import CHECKOUT
from tests.faults.catalogue import CATALOGUE, GROUPS
from tests.faults.verdict import Observed
from tests.made_part import with_part

DOCUMENT = CHECKOUT / "docs" / "reference" / "faults.md"
BEGIN, END = "<!-- faults: written by make faults -->\n", "<!-- end of faults -->\n"

type Cells = Sequence[str]
"""What a row says after the name and the description: repeated steps, recovery, counted restarts, ending, result."""

_HEAD = (
    "| Fault | Description | Repeated steps | Recovery | Counted restarts | Ending | Result |",
    "|---|---|---:|---:|---:|---|---|",
)
NOT_MEASURED: Cells = ("-", "-", "-", "-", "not measured")
_NO_RUN = "No run of the whole catalogue is recorded yet: `make faults` fills these tables."
_ROW = re.compile(r"^\| `([a-z-]+)` \| .+? \| (.+) \|$", re.MULTILINE)


def cells(seen: Observed, failed: Sequence[str]) -> Cells:
    """Return the cells of a fault: what was observed, and the checks that failed."""
    recovery = "-" if seen.recovery_seconds is None else f"{seen.recovery_seconds:.0f} s"
    ending = f"{seen.terminal}: {', '.join(seen.endings) or 'before a run was open'}"
    return str(seen.lost_steps), recovery, str(seen.charged), ending, "; ".join(map(_one_cell, failed)) or "passed"


def failed_cells(error: str) -> Cells:
    """Return the cells of a fault that could not be injected, or whose job did not end."""
    return (*NOT_MEASURED[:-1], f"failed: {_one_cell(error)}")


def _one_cell(text: str) -> str:
    return (text.splitlines() or [""])[0].replace("|", "/")


def row(name: str, measured: Cells) -> str:
    """Return the row of a fault, with the description of the catalogue."""
    (fault,) = [fault for fault in CATALOGUE if fault.name == name]
    return f"| `{name}` | {fault.what} | {' | '.join(measured)} |"


def with_run(document: str, measured: Mapping[str, Cells], commit: str, minutes: float) -> str:
    """Return the document with the results of one run of the whole catalogue."""
    passed = sum(each[-1] == "passed" for each in measured.values())
    summary = f"{passed} of {len(measured)} faults passed in one run of {minutes:.0f} minutes at the commit `{commit}`."
    return with_part(document, BEGIN, "".join(_part(summary, measured)), END)


def with_catalogue(document: str) -> str:
    """Return the document with the faults of the catalogue and the results that it has. Others are not measured."""
    written = document.partition(BEGIN)[2].partition(END)[0]
    summary = (written.splitlines() or ["", ""])[1] if written.strip() else _NO_RUN
    measured = {name: found.split(" | ") for name, found in _ROW.findall(written)}
    return with_part(document, BEGIN, "".join(_part(summary, measured)), END)


def _part(summary: str, measured: Mapping[str, Cells]) -> Iterator[str]:
    yield f"\n{summary}\n"
    for title, faults in GROUPS.items():
        rows = [row(fault.name, measured.get(fault.name, NOT_MEASURED)) for fault in faults]
        yield "\n".join(["", f"### {title}", "", *_HEAD, *rows, ""])
    yield "\n"

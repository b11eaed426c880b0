"""Renders the generated parts of docs/reliability.md from the exit codes and the results in docs/chaos."""

from collections.abc import Iterator, Sequence
from statistics import median

from chaos import report
from chaos.faults import GROUPS
from chaos.trial import LongRun, Result, from_json
from infra.jobset import UNCOUNTED_CODES
from tests.documents.model_fields import enum_meanings, one_line
from tests.documents.pages import DOCS
from tests.made_part import with_part
from workloads.spec import FATAL_CODES, ExitCode

_MADE_BY = "made by tests/documents/reliability_reference.py"
CODES = f"<!-- exit codes: {_MADE_BY} -->\n", "<!-- end of exit codes -->\n"
FAULTS = f"<!-- faults: {_MADE_BY} -->\n", "<!-- end of faults -->\n"
LONG_RUN = f"<!-- long run: {_MADE_BY} -->\n", "<!-- end of long run -->\n"

FAULTS_PICTURE, LONG_RUN_PICTURE = "chaos/faults.svg", "chaos/long_run.svg"
"""Files next to the document."""

_MEASURED = DOCS / "chaos"
"""`results.json` and `long_run.json` come from a run of the catalogue."""


def measured() -> tuple[Result, ...]:
    """Return the results of each fault."""
    return from_json((_MEASURED / "results.json").read_text())


def long_run() -> LongRun:
    """Return the results of the long run."""
    return LongRun.model_validate_json((_MEASURED / "long_run.json").read_text())


def with_codes(document: str) -> str:
    """Return the document with the current exit codes."""
    # Each docstring has the cause before the colon and the reaction after it.
    meanings = enum_meanings(ExitCode)
    causes = [(ExitCode[name], one_line(text).rpartition(": ")[0]) for name, text in meanings.items()]
    rows = [f"| {code:d} | `{code.name}` | {cause} | {_then(code)} |" for code, cause in causes]
    return with_part(
        document, CODES[0], _lines("| Code | Name | Cause | Reaction |", "|---:|---|---|---|", *rows), CODES[1]
    )


def with_faults(document: str, results: Sequence[Result]) -> str:
    """Return the document with a summary, the picture, and a table for each group of faults."""
    return with_part(document, FAULTS[0], "".join(_faults(results)), FAULTS[1])


def with_long_run(document: str, run: LongRun) -> str:
    """Return the document with the summary, picture and tables of the long run."""
    words, tables = report.long_run_markdown(run).split("\n\n", 1)
    shown = f"![loss of one job over wall time; vertical lines: random faults]({LONG_RUN_PICTURE})"
    return with_part(document, LONG_RUN[0], f"\n{words}\n\n{shown}\n\n{tables}\n", LONG_RUN[1])


def without_made_parts(document: str) -> str:
    """Return the document without its generated parts."""
    for begin, end in (CODES, FAULTS, LONG_RUN):
        document = with_part(document, begin, "", end)
    return document


def _faults(results: Sequence[Result]) -> Iterator[str]:
    yield f"\n{_summary(results)}\n\n"
    yield f"![loss of every job over wall time; vertical lines: injected faults]({FAULTS_PICTURE})\n"
    by_name = {result.fault: result for result in results}
    for title, faults in GROUPS.items():
        found = [by_name[fault.name] for fault in faults if fault.name in by_name]
        yield f"\n### {title} ({len(found)})\n\n{report.markdown(found)}"
    yield "\n"


def _summary(results: Sequence[Result]) -> str:
    """Return how many results were as expected, the most lost steps, and the times of recovery."""
    lost = max(results, key=lambda result: result.lost_steps)
    again = [
        (result.recovery_seconds, result.fault)
        for result in results
        if result.recovery_seconds is not None and len(result.endings) > 1
    ]
    slowest, last = max(again)
    minutes = sum(result.ended - result.began for result in results) / 60
    commits = ", ".join(f"`{commit}`" for commit in sorted({result.commit for result in results}))
    return (
        f"{sum(result.holds for result in results)} of {len(results)} faults had the expected result, at {commits}, in"
        f" {minutes:.0f} minutes. At most {lost.lost_steps} steps were repeated (`{lost.fault}`). The {len(again)} jobs"
        f" that had to restart and could continue did so after a median of"
        f" {median(seconds for seconds, _ in again):.0f} s and at most {slowest:.0f} s (`{last}`), counted from the"
        " injection."
    )


def _then(code: ExitCode) -> str:
    if code in FATAL_CODES:
        return "the job fails"
    return "the job restarts; does not count" if code in UNCOUNTED_CODES else "the job restarts; counts"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("", *lines, ""))

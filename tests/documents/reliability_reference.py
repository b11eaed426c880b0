"""Generate parts of docs/explanation/reliability.md: exit codes from the enum, and measurements from the results in
docs/chaos."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from chaos import report
from chaos.faults import GROUPS
from chaos.target import Fault
from chaos.trial import LongRun, Result, from_json
from infra.jobset import UNCOUNTED_CODES
from tests.documents.model_fields import enum_meanings, one_line
from tests.documents.pages import DOCS
from tests.made_part import with_part
from workloads.report.goodput import Cause
from workloads.spec import FATAL_CODES, ExitCode

_MADE_BY = "made by tests/documents/reliability_reference.py"
CODES = f"<!-- exit codes: {_MADE_BY} -->\n", "<!-- end of exit codes -->\n"
FAULTS = f"<!-- faults: {_MADE_BY} -->\n", "<!-- end of faults -->\n"
FAULTS_PICTURE = "pictures/faults.svg"


@dataclass(frozen=True)
class RecordedRun:
    """A long run in docs/chaos, its picture in docs, and its part of the document."""

    file: str
    picture: str

    @property
    def marks(self) -> tuple[str, str]:
        """Return the lines around its part."""
        return f"<!-- long run, restart: {_MADE_BY} -->\n", "<!-- end of restart -->\n"

    def read(self) -> LongRun:
        return LongRun.model_validate_json((_MEASURED / self.file).read_text())


LONG_RUNS = (RecordedRun("long_run.json", "pictures/long_run.svg"),)

_HEAD = (
    "| Fault | Description | Repeated steps | Recovery | Counted restarts | Ending | Result |",
    "|---|---|---:|---:|---:|---|---|",
)

_MEASURED = DOCS / "chaos"
"""`results.json` comes from runs of the catalogue, the others from runs with `--random`."""


def measured() -> tuple[Result, ...]:
    """Return the result of each fault."""
    return from_json((_MEASURED / "results.json").read_text())


def with_codes(document: str) -> str:
    """Return the document with the exit codes of the enum."""
    # Each docstring gives the cause first, then the effect.
    meanings = enum_meanings(ExitCode)
    causes = [(ExitCode[name], one_line(text).rpartition(": ")[0]) for name, text in meanings.items()]
    rows = [f"| {code:d} | `{code.name}` | {cause} | {_then(code)} |" for code, cause in causes]
    table = _lines("| Code | Name | Cause | Effect |", "|---:|---|---|---|", *rows)
    return with_part(document, CODES[0], table, CODES[1])


def with_faults(document: str, results: Sequence[Result]) -> str:
    """Return the document with a summary, the picture, and a table for each group of faults."""
    return with_part(document, FAULTS[0], "".join(_faults(results)), FAULTS[1])


def with_long_runs(document: str) -> str:
    """Return the document with a summary of each long run, its picture and its tables."""
    for recorded in LONG_RUNS:
        run = recorded.read()
        _, tables = report.long_run_markdown(run).split("\n\n", 1)
        shown = f"![Loss of one job over wall time. Vertical lines are random faults.](../{recorded.picture})"
        text = f"\n{_long_run_summary(run)}\n\n{shown}\n\n{tables}\n"
        document = with_part(document, recorded.marks[0], text, recorded.marks[1])
    return document


def without_made_parts(document: str) -> str:
    """Return the document without its generated parts."""
    for begin, end in (CODES, FAULTS, *(run.marks for run in LONG_RUNS)):
        document = with_part(document, begin, "", end)
    return document


def _faults(results: Sequence[Result]) -> Iterator[str]:
    yield f"\n{_summary(results)}\n\n"
    yield f"![Recovery time after each fault, by affected component](../{FAULTS_PICTURE})\n"
    by_name = {result.fault: result for result in results}
    for title, faults in GROUPS.items():
        found = [(fault, by_name[fault.name]) for fault in faults if fault.name in by_name]
        if not found:
            continue
        rows = (_row(fault, result) for fault, result in found)
        yield f"\n### {title} ({len(found)})\n{_lines(*_HEAD, *rows)}".removesuffix("\n")
    yield "\n"


def _row(fault: Fault, result: Result) -> str:
    """Return the row of a result, with the description that the catalogue has today."""
    ending = f"{result.ended_as}: {', '.join(result.endings) or 'before a run was open'}"
    verdict = "; ".join(result.broken) or "passed"
    cells = fault.what, result.lost_steps, _recovery(result), result.charged, ending, verdict
    return f"| `{fault.name}` | {' | '.join(map(str, cells))} |"


def _recovery(result: Result) -> str:
    """Return how long the job did no new step, or what slices that train on noticed of a lost one."""
    if found := result.slices:
        steps = f"step {found.loss_step_seconds:.2f} s, median {found.median_step_seconds:.2f} s"
        return f"{steps}; back after {found.back_seconds or 0:.0f} s"
    return "-" if result.recovery_seconds is None else f"{result.recovery_seconds:.0f} s"


def _summary(results: Sequence[Result]) -> str:
    """Return how many faults passed, the most steps that were repeated, and the recovery times."""
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
        f"{sum(result.holds for result in results)} of {len(results)} faults passed at the commits {commits} in"
        f" {minutes:.0f} minutes. At most {lost.lost_steps} steps were repeated (`{lost.fault}`)."
        f" {len(again)} jobs restarted and completed. Their recovery took"
        f" {median(seconds for seconds, _ in again):.0f} s (median), and {slowest:.0f} s at most (`{last}`)."
    )


def _long_run_summary(run: LongRun) -> str:
    """Return the outcome of the long run."""
    seen = run.result
    minutes = (seen.ended - seen.began) / 60
    productive = 100 * run.spent.get(Cause.PRODUCTIVE, 0.0) / sum(run.spent.values())
    attempts = "one attempt" if len(seen.endings) == 1 else f"{len(seen.endings)} attempts"
    return (
        f"{seen.ended_as} with seed {run.seed}: {seen.what}. {run.steps} steps took {minutes:.0f} minutes"
        f" and {attempts}, with {seen.charged} counted restarts and {seen.lost_steps} repeated steps."
        f" Goodput was {productive:.1f} %. {'; '.join(seen.broken) or 'All checks passed'}."
    )


def _then(code: ExitCode) -> str:
    if code in FATAL_CODES:
        return "the job fails"
    return "the job restarts; does not count" if code in UNCOUNTED_CODES else "the job restarts; counts"


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in ("", *lines, ""))

"""Generates parts of docs/explanation/reliability.md: exit codes from the enum, and the faults of the catalogue."""

from tests.documents.model_fields import enum_meanings, one_line
from tests.faults.page import with_catalogue
from tests.made_part import with_part
from workloads.spec import FATAL_CODES, UNCOUNTED_CODES, ExitCode

BEGIN, END = "<!-- exit codes: made by tests/documents/reliability_reference.py -->\n", "<!-- end of exit codes -->\n"


def reference(document: str) -> str:
    """Return the document with the exit codes of the enum and a row for each fault of the catalogue."""
    # Each docstring gives the cause first, then the effect.
    meanings = enum_meanings(ExitCode)
    causes = [(ExitCode[name], one_line(text).rpartition(": ")[0]) for name, text in meanings.items()]
    rows = [f"| {code:d} | `{code.name}` | {cause} | {_then(code)} |" for code, cause in causes]
    table = ["", "| Code | Name | Cause | Effect |", "|---:|---|---|---|", *rows, "", ""]
    return with_catalogue(with_part(document, BEGIN, "\n".join(table), END))


def _then(code: ExitCode) -> str:
    if code in FATAL_CODES:
        return "the job fails"
    return "the job restarts; does not count" if code in UNCOUNTED_CODES else "the job restarts; counts"

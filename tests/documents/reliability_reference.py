"""Generates parts of docs/explanation/reliability.md: exit codes from the enum, and the faults of the catalogue."""

from multislice_run.exit_codes import ExitCode, Reaction
from tests.documents.exit_codes_reference import sentence
from tests.faults.page import with_catalogue
from tests.made_part import with_part

BEGIN, END = "<!-- exit codes: made by tests/documents/reliability_reference.py -->\n", "<!-- end of exit codes -->\n"


def reference(document: str) -> str:
    """Return the document with the exit codes of the enum and a row for each fault of the catalogue."""
    failures = [code for code in ExitCode if code.meaning.reaction is not Reaction.COMPLETE]
    rows = [f"| {code:d} | `{code.name}` | {sentence(code)} | {_then(code)} |" for code in failures]
    table = ["", "| Code | Name | Cause | Effect |", "|---:|---|---|---|", *rows, "", ""]
    return with_catalogue(with_part(document, BEGIN, "\n".join(table), END))


def _then(code: ExitCode) -> str:
    if code.meaning.reaction is Reaction.FAIL:
        return "the job fails"
    return "the job restarts; counts" if code.meaning.counts else "the job restarts; does not count"

"""Renders what only a run on Google Cloud can confirm."""

from cli.doctor.unconfirmed import assumptions
from tests.documents.pages import MADE

_HEAD = f"""# Not confirmed

{MADE.format("tests/documents/unconfirmed_reference.py")}

Nothing in this repository has run on Google Cloud or on a TPU. These assumptions need such a run. Check the stages in
order: each costs more than the one before. `multislice doctor -s STACK` lists the assumptions that a stack depends on.
If you have checked one, please open an issue with the template "Confirmation on a TPU".
"""
_COLUMNS = "| Subject | Assumption | How to check |\n|---|---|---|\n"


def reference() -> str:
    """Return the page."""
    return _HEAD + "".join(_stage(*each) for each in enumerate(dict.fromkeys(each.stage for each in assumptions()), 1))


def _stage(number: int, title: str) -> str:
    found = (each for each in assumptions() if each.stage == title)
    rows = "".join(f"| {each.subject} | {each.assumption} | {each.how} |\n" for each in found)
    return f"\n## {number}. {title}\n\n{_COLUMNS}{rows}"

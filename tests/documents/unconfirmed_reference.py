"""Renders what only a run on Google Cloud can confirm."""

from cli.doctor.unconfirmed import ASSUMPTIONS, STAGES
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
    return _HEAD + "".join(_stage(index, title) for index, title in enumerate(STAGES))


def _stage(index: int, title: str) -> str:
    found = (each for each in ASSUMPTIONS if each.stage == index)
    rows = "".join(f"| {each.subject} | {each.assumption} | {each.how} |\n" for each in found)
    return f"\n## {index + 1}. {title}\n\n{_COLUMNS}{rows}"

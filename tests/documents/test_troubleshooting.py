"""The exit codes in docs/how-to/troubleshooting.md are those of the trainer."""

import re

from tests.documents.pages import DOCS
from workloads.spec import ExitCode

TEXT = (DOCS / "how-to" / "troubleshooting.md").read_text()
ROWS = [row for row in re.findall(r"^\| (.+) \|$", TEXT, re.MULTILINE) if not row.startswith(("Message", "Phase"))]
CODED = [(found[1], int(found[2])) for row in ROWS if (found := re.match(r"(`[^`]+`) \| (\d+) \|", row))]


def test_the_codes_are_those_of_the_trainer() -> None:
    assert CODED
    assert {code for _, code in CODED} <= set(ExitCode)


def test_every_code_that_is_no_success_has_an_entry() -> None:
    told = {code for _, code in CODED} | {int(code) for code in re.findall(r"[Ee]xit code (\d+)", TEXT)}
    assert set(ExitCode) - {ExitCode.DONE, ExitCode.PREEMPTED} <= told

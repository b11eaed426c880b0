"""What docs/troubleshooting.md quotes is what the program says."""

import re

import pytest

from tests.documents.messages import is_said
from tests.documents.pages import DOCS
from workloads.spec import ExitCode

TEXT = (DOCS / "troubleshooting.md").read_text()
ROWS = [row for row in re.findall(r"^\| (.+) \|$", TEXT, re.MULTILINE) if not row.startswith(("it says", "it went"))]
QUOTED = [found[1] for row in ROWS if (found := re.match(r"`([^`]+)` \|", row))]
CODED = [(found[1], int(found[2])) for row in ROWS if (found := re.match(r"(`[^`]+`) \| (\d+) \|", row))]


@pytest.mark.parametrize("message", QUOTED)
def test_a_quoted_message_is_said_by_the_program(message: str) -> None:
    assert is_said(message)


@pytest.mark.parametrize(
    "message", ["the settings of this stack have ... error(s):", "Nobody acts with a downloaded key"]
)
def test_messages_of_the_text_are_said_too(message: str) -> None:
    assert f"`{message}`" in TEXT
    assert is_said(message)


def test_what_nobody_says_would_be_found() -> None:
    assert not is_said("the moon is ... made of cheese")
    assert not is_said("error(s): the settings of this stack have ...")


def test_the_codes_are_those_of_the_trainer() -> None:
    assert CODED
    assert {code for _, code in CODED} <= set(ExitCode)


def test_every_code_that_is_no_success_has_an_entry() -> None:
    told = {code for _, code in CODED} | {int(code) for code in re.findall(r"[Ee]xit code (\d+)", TEXT)}
    assert set(ExitCode) - {ExitCode.DONE, ExitCode.PREEMPTED} <= told

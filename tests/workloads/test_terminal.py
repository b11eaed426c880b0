from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from workloads.terminal import Terminal, inert

CLIPBOARD = "\x1b]52;c;ZXZpbA==\x07"
CLEARED, LINK, EIGHT_BIT = "\x1b[2J", "\x1b]8;;https://example.com\x1b\\here\x1b]8;;\x1b\\", "\x9b2J"


def shown(*things: object) -> str:
    """Return what a terminal shows."""
    file = StringIO()
    console = Terminal(file=file, force_terminal=True, color_system=None, width=120)
    console.print(*things)
    return file.getvalue()


@pytest.mark.parametrize("attack", [CLIPBOARD, CLEARED, LINK, EIGHT_BIT, "\rover", "\x08", "\u202etxet"])
def test_text_of_others_does_nothing_to_the_terminal(attack: str) -> None:
    table = Table("cause")
    table.add_row(Text(f"broken {attack} host"))
    for written in (inert(attack), shown(attack), shown(Text(attack)), shown(table)):
        assert not any(mark in written for mark in "\x1b\x9b\r\x08\x07\u202e"), repr(written)


def test_markup_in_text_of_others_makes_no_link() -> None:
    assert "https" not in shown("[link=https://example.com]here[/link]")


def test_each_state_of_a_progress_bar_is_a_line() -> None:
    assert inert("10%\r20%\r\ndone\n") == "10%\n20%\ndone\n"


def test_other_text_stays_as_it_is() -> None:
    text = "losses: 1.5 → 1.4\n\tworse on “slice-0-1” 各"
    assert inert(text) == text


def test_styles_of_the_program_stay() -> None:
    file = StringIO()
    Terminal(file=file, force_terminal=True, color_system="standard").print(Text("bad", "red"))
    assert file.getvalue() == "\x1b[31mbad\x1b[0m\n"

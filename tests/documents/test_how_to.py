"""Every command has a page of the menu's "How to" that shows it as one types it."""

import pytest

from tests.documents.command_line_reference import commands, targets
from tests.documents.command_lines import command_lines
from tests.documents.how_to_index import how_to_pages
from tests.documents.pages import name_of

COMMANDS = [
    *(target.words for target in targets()),
    *(f"multislice {command.words}" for command in commands()),
]
PAGES = {name_of(page) for page in how_to_pages()}


def shown(command: str) -> set[str]:
    """Pages of "How to" with a command line that begins so."""
    lines = [pages for line, pages in command_lines().items() if f"{line} ".startswith(f"{command} ")]
    return PAGES.intersection(*[set().union(*lines)])


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_a_how_to(command: str) -> None:
    assert shown(command), f"{command}: show it on one of {', '.join(sorted(PAGES))}"

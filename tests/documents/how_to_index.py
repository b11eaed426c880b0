"""The table of all commands, made from what declares them and from the pages that name them."""

import re

from tests.documents.command_line_reference import commands, targets
from tests.documents.exit_codes_reference import EVERY_COMMAND
from tests.documents.pages import DOCS, MADE, generated, title

_HEAD = f"""# Which command does what

{MADE.format("tests/documents/how_to_index.py")}

`multislice` stands for `python -m cli.multislice`, with the Python of `.venv`. [Options and
defaults](../command-line.md); [what the exit statuses have in common](../exit-codes.md#of-commands).
"""
_TARGETS = "\n## make\n\n| command | does | described in |\n|---|---|---|\n"
_COMMANDS = "\n## multislice\n\n| command | does | exit status | described in |\n|---|---|---|---|\n"
_NO_DESCRIPTIONS = ("troubleshooting", "comparison", "limits")
_NAMED_PAGES = 3
"""As many pages a row names at most, those first that name the command most often."""


def reference() -> str:
    """The whole text."""
    parts = [_HEAD, _TARGETS]
    parts += [f"| `{each.words}` | {each.about} | {_described(each.words)} |\n" for each in targets()]
    parts.append(_COMMANDS)
    for command in commands():
        statuses = EVERY_COMMAND | command.exit_statuses
        told = "; ".join(f"{number}: {meaning}" for number, meaning in sorted(statuses.items()))
        where = _described(f"multislice {command.words}")
        parts.append(f"| `multislice {command.words}` | {command.sentence} | {told} | {where} |\n")
    return "".join(parts)


def _described(words: str) -> str:
    name = re.compile(rf"\b{re.escape(words)}\b(?! [a-z]+/)")
    pages = [page for page in sorted(DOCS.glob("*.md")) if page.stem not in _NO_DESCRIPTIONS and not generated(page)]
    counted = [(len(name.findall(page.read_text())), page) for page in pages]
    found = sorted((page for page in counted if page[0]), key=lambda page: -page[0])[:_NAMED_PAGES]
    links = [f"[{title(page)}](../{page.name})" for _, page in found]
    return ", ".join(links or ["[command line](../command-line.md)"])

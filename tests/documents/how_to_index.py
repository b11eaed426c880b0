"""The table of all commands, made from what declares them and from the pages that name them."""

import re
from pathlib import Path

import yaml

from tests.documents.command_line_reference import commands, targets
from tests.documents.exit_codes_reference import EVERY_COMMAND
from tests.documents.pages import DOCS, MADE, ROOT, generated, title

_HEAD = f"""# Which command does what

{MADE.format("tests/documents/how_to_index.py")}

`multislice` is `bin/multislice` of the checkout, which is `python -m cli.multislice` with the Python of `.venv`.
[Options and defaults](../command-line.md); [exit statuses](../exit-codes.md#exit-statuses-of-commands).
"""
_TARGETS = "\n## make\n\n| command | does | described in |\n|---|---|---|\n"
_COMMANDS = "\n## multislice\n\n| command | does | exit status | described in |\n|---|---|---|---|\n"
_NO_DESCRIPTIONS = ("troubleshooting", "comparison", "limits", "compiler")
_NAMED_PAGES = 3
"""As many pages a row names at most: of the menu's "How to" first, then those that name the command most often."""


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
    told = [(len(name.findall(page.read_text())), page) for page in _written()]
    found = sorted((each for each in told if each[0]), key=lambda each: (each[1] not in how_to_pages(), -each[0]))
    return ", ".join(f"[{title(page)}]({_from_here(page)})" for _, page in found[:_NAMED_PAGES])


def how_to_pages() -> list[Path]:
    """Those below "How to" in the menu, without the table of this module."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    (entries,) = [entry["How to"] for entry in menu if "How to" in entry]
    return [DOCS / path for entry in entries if isinstance(entry, dict) for path in entry.values()]


def _written() -> list[Path]:
    pages = [*sorted(DOCS.glob("*.md")), *sorted((DOCS / "how-to").glob("*.md"))]
    return [page for page in pages if page.stem not in _NO_DESCRIPTIONS and not generated(page)]


def _from_here(page: Path) -> str:
    return page.name if page.parent.name == "how-to" else f"../{page.name}"

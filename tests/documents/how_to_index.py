"""Renders the table of all commands, with the pages that describe each one."""

import os
import re
from pathlib import Path

import yaml

from tests.documents.command_line_reference import commands, targets
from tests.documents.pages import DOCS, MADE, ROOT, generated, title

_HEAD = f"""# Commands

{MADE.format("tests/documents/how_to_index.py")}

For options and defaults, see the [command line reference](../reference/command-line.md). A command of `multislice`
exits with 0 on success and 1 on error, unless the table says otherwise:
[exit codes](../reference/exit-codes.md#commands).
"""
_TARGETS = "\n## make\n\n| Command | Description | Pages |\n|---|---|---|\n"
_COMMANDS = "\n## multislice\n\n| Command | Description | Exit status | Pages |\n|---|---|---|---|\n"
_NO_DESCRIPTIONS = ("index", "troubleshooting", "comparison", "limits", "compiler")
_FOLDERS = ("tutorials", "how-to", "reference", "explanation")
_NAMED_PAGES = 3
"""Number of pages in a row: those of the menu's "How to" first, then by how often they name the command."""


def reference() -> str:
    """Return the page."""
    parts = [_HEAD, _TARGETS]
    parts += [f"| `{each.words}` | {each.about} | {_described(each.words)} |\n" for each in targets()]
    parts.append(_COMMANDS)
    for command in commands():
        shown = "; ".join(f"{number}: {meaning}" for number, meaning in sorted(command.exit_statuses.items()))
        where = _described(f"multislice {command.words}")
        parts.append(f"| `multislice {command.words}` | {command.sentence} | {shown} | {where} |\n")
    return "".join(parts)


def _described(words: str) -> str:
    name = re.compile(rf"\b{re.escape(words)}\b(?! [a-z]+/)")
    counts = [(len(name.findall(page.read_text())), page) for page in _written()]
    found = sorted((each for each in counts if each[0]), key=lambda each: (each[1] not in how_to_pages(), -each[0]))
    return ", ".join(f"[{title(page)}]({_from_here(page)})" for _, page in found[:_NAMED_PAGES])


def how_to_pages() -> list[Path]:
    """Return the pages below "How to" in the menu, except the one that this module renders."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    (entries,) = [entry["How to"] for entry in menu if "How to" in entry]
    return [DOCS / path for entry in entries if isinstance(entry, dict) for path in entry.values()]


def _written() -> list[Path]:
    pages = [*DOCS.glob("*.md"), *(page for folder in _FOLDERS for page in (DOCS / folder).glob("*.md"))]
    return [page for page in sorted(pages) if page.stem not in _NO_DESCRIPTIONS and not generated(page)]


def _from_here(page: Path) -> str:
    return os.path.relpath(page, DOCS / "how-to")

"""Renders the list of the pages of "How to", with the commands that each one describes."""

import os
import re
from pathlib import Path

import yaml

from tests.documents.command_line_reference import commands, targets
from tests.documents.pages import DOCS, MADE, ROOT, title

_HEAD = f"""# Commands

{MADE.format("tests/documents/how_to_index.py")}

Every command, by the pages that describe it. The [command line reference](../reference/command-line.md)
has their options, and [exit codes](../reference/exit-codes.md#commands) what they return.

| Page | Commands |
|---|---|
"""
_PAGES_PER_COMMAND = 2
"""Number of pages that list a command: those that name it most often."""


def reference() -> str:
    """Return the page."""
    every = [*(each.words for each in targets()), *(f"multislice {each.words}" for each in commands())]
    described = {words: _pages_of(words) for words in every}
    listed = {page: [f"`{words}`" for words in every if page in described[words]] for page in how_to_pages()}
    return _HEAD + "".join(
        f"| [{title(page)}]({os.path.relpath(page, DOCS / 'how-to')}) | {', '.join(found)} |\n"
        for page, found in listed.items()
        if found
    )


def how_to_pages() -> list[Path]:
    """Return the pages below "How to" in the menu, except the one that this module renders."""
    menu = yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]
    (entries,) = [entry["How to"] for entry in menu if "How to" in entry]
    return [DOCS / path for entry in entries if isinstance(entry, dict) for path in entry.values()]


def _pages_of(words: str) -> list[Path]:
    name = re.compile(rf"\b{re.escape(words)}\b(?! [a-z]+/)")
    counts = {page: len(name.findall(page.read_text())) for page in how_to_pages()}
    found = [page for page, count in counts.items() if count]
    return sorted(found, key=lambda page: -counts[page])[:_PAGES_PER_COMMAND]

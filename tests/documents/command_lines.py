"""The command lines that documents tell people to type."""

import re
from collections.abc import Iterator
from typing import Any

import typer

from tests.documents.pages import PAGES, blocks, name_of, without_blocks

_INDENTED = re.compile(r"(?:^|\n)\n((?:    [^\n]+\n)+)")
_COMMAND = re.compile(
    r"(?:[A-Z_][A-Z0-9_]*=\S+ )*"
    r"(make|python3?|\.venv|(?:bin/)?multislice|pulumi|kubectl|gcloud|gh|docker|pip|tensorboard|xprof)\b"
)
_IN_A_SENTENCE = re.compile(r"(?<!`)`((?:[A-Z_][A-Z0-9_]*=\S+ )?(?:multislice|make|pulumi)\s[^`]+)`")
"""A program with an argument; its bare name is no command line."""
_SCRIPT = re.compile(r"^(for|while|if) ", re.MULTILINE)


def command_lines() -> dict[str, list[str]]:
    """Each with the pages that have it."""
    found: dict[str, list[str]] = {}
    for page in PAGES:
        for line in _lines(page.read_text()):
            found.setdefault(line.removeprefix("bin/"), []).append(name_of(page))
    return found


def _lines(text: str) -> Iterator[str]:
    for block in blocks(text, "sh", "console"):
        # A script is run as a whole: it goes by its first line.
        yield from [joined(block)[0]] if _SCRIPT.search(block) else joined(block)
    for block in [*blocks(text, ""), *_INDENTED.findall(text)]:
        yield from (line for line in joined(block) if _COMMAND.match(line))
    for words in _IN_A_SENTENCE.findall(without_blocks(text)):
        yield " ".join(words.split())


def joined(block: str) -> list[str]:
    """Return the lines of a block without comments. A line that is continued below is one line."""
    whole = re.sub(r"\\\n\s*", "", block)
    lines = [re.sub(r"\s+#.*$", "", line).strip() for line in whole.splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def command_of(app: typer.Typer, words: list[str], *, only_named: bool = False) -> None:
    """Find the command and take its options, without running it; one that is `only_named` may lack what it needs."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name, *words = words
        command = command.commands[name]
    if words or not only_named:
        command.make_context(command.name, words)

"""The documents: which there are, their blocks and headings, and whether a page is still what makes it."""

import os
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "sandbox" / "README.md", *sorted(DOCS.rglob("*.md"))]
"""Every document that is read as Markdown."""

MADE = "<!-- made by {}: UPDATE_GOLDEN=1 python -m pytest tests/documents/test_references.py -->"
"""Says in a page that nobody writes it."""

_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    """As people name the page: its path in the repository."""
    return str(page.relative_to(ROOT))


def hold(page: Path, made: str) -> None:
    """The file is what `made` says; with UPDATE_GOLDEN=1 it becomes that."""
    if os.environ.get("UPDATE_GOLDEN") == "1":
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(made)
    assert page.read_text() == made


def blocks(text: str, *languages: str) -> list[str]:
    """The contents of fenced blocks of these languages, in their order."""
    return [body for language, body in _FENCED.findall(text) if language in languages]


def without_blocks(text: str) -> str:
    """The page less its fenced blocks, whose lines are no headings or links."""
    return _FENCED.sub("", text)


def anchors(text: str) -> set[str]:
    """The places of a page that a link may lead to: its headings, as the forge and the site write them."""
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", without_blocks(text), re.MULTILINE)}


def anchor(heading: str) -> str:
    """A heading in small letters without its marks, words joined by hyphens."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")


def generated(page: Path) -> bool:
    """Nobody writes this page."""
    return "<!-- made by " in page.read_text() and name_of(page) != "docs/reference/policy.md"


def title(page: Path) -> str:
    """The first heading."""
    return re.findall(r"^# (.+)$", page.read_text(), re.MULTILINE)[0]

"""Notes of a release, from the changelog."""

import re
from pathlib import Path

from cli.answer import Halt
from cli.ci.licences import declared_project


def release_notes(checkout: Path, tag: str) -> str:
    """Return the section of the changelog for the release with that tag.

    Raises:
        Halt: the tag is not that of the package's version, or the changelog has no such section.
    """
    version = declared_project(checkout)["version"]
    if tag != f"v{version}":
        raise Halt(f"pyproject.toml: expected the version of the tag {tag}, got {version}; change one of them")
    text = (checkout / "CHANGELOG.md").read_text()
    found = re.search(rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise Halt(
            f"CHANGELOG.md: expected a section `## {version}` with notes, got none; move the unreleased notes there"
        )
    return found[1].strip()

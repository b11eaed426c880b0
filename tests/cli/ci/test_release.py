"""A release has the version of its tag, and notes."""

from pathlib import Path

import pytest

from cli.answer import Halt
from cli.ci.release import release_notes

CHANGELOG = """# Changelog

## Unreleased

- Later.

## 1.2.0 - 2026-11-24

### Added
- Something.

## 1.1.0

- Before.
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "x"\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    return tmp_path


def test_the_notes_are_the_section_of_the_version(checkout: Path) -> None:
    assert release_notes(checkout, "v1.2.0") == "### Added\n- Something."


@pytest.mark.parametrize("tag", ["v1.1.0", "1.2.0", "v1.2"])
def test_a_tag_that_is_not_the_version_makes_no_release(checkout: Path, tag: str) -> None:
    with pytest.raises(Halt, match=r"pyproject\.toml: expected the version of the tag"):
        release_notes(checkout, tag)


def test_a_version_without_notes_makes_no_release(checkout: Path) -> None:
    (checkout / "CHANGELOG.md").write_text(CHANGELOG.replace("## 1.2.0", "## 1.3.0"))
    with pytest.raises(Halt, match=r"CHANGELOG\.md: expected a section"):
        release_notes(checkout, "v1.2.0")

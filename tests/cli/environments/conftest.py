"""Stack files in a folder of the test's own, without example values, and a backend that knows dev."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.environments.files import Files
from tests.cli.environments.remembered import Remembered
from tests.infra.recording import ROOT

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


def stacks_of_our_own(folder: Path) -> None:
    """Copy the repository's stack files, with other values in place of the examples'."""
    shutil.copytree(ROOT / "stacks", folder)
    for path in folder.iterdir():
        path.write_text(path.read_text().replace("my-", "our-").replace("0" * 64, "a" * 64))


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def files(tmp_path: Path) -> Files:
    stacks_of_our_own(tmp_path / "stacks")
    (tmp_path / "policies").mkdir()
    return Files(tmp_path / "stacks", tmp_path / "policies")


@pytest.fixture
def backend(files: Files) -> Remembered:
    found = Remembered(files, NOW)
    found.up("dev")
    return found

"""The repository's stack files in a folder of the test's own, and a backend that knows dev."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli.environments.files import Files
from tests.cli.environments.remembered import Remembered
from tests.infra.recording import ROOT

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


@pytest.fixture
def now() -> datetime:
    return NOW


@pytest.fixture
def files(tmp_path: Path) -> Files:
    shutil.copytree(ROOT / "stacks", tmp_path / "stacks")
    (tmp_path / "policies").mkdir()
    return Files(tmp_path / "stacks", tmp_path / "policies")


@pytest.fixture
def backend(files: Files) -> Remembered:
    found = Remembered(files, NOW)
    found.up("dev")
    return found

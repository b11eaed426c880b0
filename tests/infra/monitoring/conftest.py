"""Prometheus' own checker."""

from pathlib import Path

import pytest

from sandbox.builds import prepare_one
from sandbox.programs import PROMTOOL


@pytest.fixture(scope="session")
def promtool() -> Path:
    return prepare_one(PROMTOOL, lambda _: None)

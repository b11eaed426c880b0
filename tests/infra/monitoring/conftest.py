"""Prometheus' own checker."""

from pathlib import Path

import pytest

from sandbox.catalog import PROMTOOL
from sandbox.programs import prepare_one


@pytest.fixture(scope="session")
def promtool() -> Path:
    return prepare_one(PROMTOOL, lambda _: None)

"""A stack without objects, and a call that was submitted to it."""

from pathlib import Path

import pytest

from multislice.call import Call
from multislice.connection import StackConnection
from multislice.submission import submit
from tests.multislice.known import PACKED, REQUEST, Objects, connection


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def stack(tmp_path: Path, objects: Objects) -> StackConnection:
    return connection(tmp_path, objects)


@pytest.fixture
def call(stack: StackConnection) -> Call:
    """One that was submitted just now."""
    return submit(PACKED, REQUEST, stack)

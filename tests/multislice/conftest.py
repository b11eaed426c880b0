"""A stack without objects, and a call that was submitted to it."""

from pathlib import Path

import pytest

from multislice.call import Call
from multislice.submission import submit
from tests.multislice.known import Objects, place
from tests.multislice.test_submission import PACKED, WISH


@pytest.fixture
def objects() -> Objects:
    return Objects()


@pytest.fixture
def call(tmp_path: Path, objects: Objects) -> Call:
    """One that was submitted just now."""
    return submit(PACKED, WISH, place(tmp_path, objects))

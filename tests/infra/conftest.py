"""Stack files and recorded runs of the program."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra.recording import Recording, Values, run_program, stack_values, values_of


@pytest.fixture
def values() -> Values:
    """A valid stack file with an image by digest, for a test to spoil."""
    return stack_values("dev") | {"image": stack_values("prod")["image"]}


@pytest.fixture(scope="session")
def two_teams() -> Values:
    """Three slice groups, two teams."""
    return values_of(Path(__file__).parent / "two-teams.yaml")


@pytest.fixture(scope="session")
def program(two_teams: Values) -> Recording:
    """What the program registers for it."""
    return run_program(two_teams)


@pytest.fixture
def accepted_golden() -> Callable[[Path, str], None]:
    """Holds a text against a file; `UPDATE_GOLDEN=1` accepts a change."""

    def hold(golden: Path, text: str) -> None:
        if os.environ.get("UPDATE_GOLDEN") == "1":
            golden.parent.mkdir(exist_ok=True)
            golden.write_text(text)
        assert golden.read_text() == text

    return hold

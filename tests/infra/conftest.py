"""Stack files and recorded runs of the program."""

from pathlib import Path

import pytest

from tests.infra.recording import Recording, Values, run_program, stack_values, values_of


@pytest.fixture
def values() -> Values:
    """A valid stack file, for a test to spoil."""
    return stack_values("dev")


@pytest.fixture(scope="session")
def two_teams() -> Values:
    """Three slice groups, two teams."""
    return values_of(Path(__file__).parent / "two-teams.yaml")


@pytest.fixture(scope="session")
def program(two_teams: Values) -> Recording:
    """What the program registers for it."""
    return run_program(two_teams)

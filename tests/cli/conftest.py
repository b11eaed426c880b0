from collections.abc import Generator

import pytest

from tests.ci.conftest import stand_in
from tests.cli.api_server import Played, playing
from tests.cli.standing import running

__all__ = ["server", "stand_in"]


@pytest.fixture
def server() -> Generator[Played]:
    """A cluster in which the job `tiny` runs and every host of it has printed two lines."""
    with playing(running()) as played:
        yield played

"""A sandbox of its own for faults, and the losses of a job in it that no fault strikes."""

from collections.abc import Generator, Mapping

import pytest

from tests.chain.stack import Chain, sandbox_in
from tests.faults.trial import declare


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A running sandbox, and what is needed to work with it."""
    with sandbox_in(tmp_path_factory.mktemp("sandbox")) as chain:
        yield chain


@pytest.fixture(scope="session")
def steady(chain: Chain) -> Mapping[int, float]:
    """Losses by step of an undisturbed job."""
    return declare(chain)

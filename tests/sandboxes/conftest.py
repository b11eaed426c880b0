"""Another sandbox, for modules that turn a whole one upside down; some make one of their own."""

from collections.abc import Generator

import pytest

from tests.chain.stack import Chain, sandbox_in


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A running sandbox, and what is needed to work with it."""
    with sandbox_in(tmp_path_factory.mktemp("sandbox")) as chain:
        yield chain

"""One sandbox for all tests of the chain: real engine, real control plane, real trainer."""

from collections.abc import Generator

import pytest

from sandbox import daemon, programs
from sandbox.site import create
from tests.chain.stack import Chain


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A running sandbox, and what is needed to work with it. Nothing is declared in it yet."""
    site = create(tmp_path_factory.mktemp("sandbox"))
    found = programs.prepare(lambda _: None)
    daemon.start(site, lambda _: None)
    try:
        yield Chain(site, found, tmp_path_factory.mktemp("stacks"))
    finally:
        daemon.stop(site)

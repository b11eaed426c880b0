"""One sandbox for all tests of the chain: real engine, real control plane, real trainer."""

from collections.abc import Generator

import pytest

from tests.chain.commands import Followed, following
from tests.chain.shared import JOB, shared
from tests.chain.stack import Chain, ignore, sandbox_in

_ORDER = (
    "test_up",
    "test_guard",
    "test_monitoring",
    "test_crash",
    "test_access",
    "test_submit",
    "test_jobset_variants",
    "test_call",
    "test_finished",
    "test_quarantine",
    "test_drift",
    "test_ownership",
    "test_by_hand",
    "test_operate_control",
    "test_down",
)
"""Modules that share one stack, in the order of its life. The others run after them, each on a stack of its own."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort modules as `_ORDER` says; the rest keep their places after them."""

    def place(item: pytest.Item) -> tuple[bool, int]:
        in_chain = item.path.parent.name == "chain"
        return not in_chain, _ORDER.index(item.path.stem) if in_chain and item.path.stem in _ORDER else len(_ORDER)

    items.sort(key=place)


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Generator[Chain]:
    """A running sandbox, and what is needed to work with it. Nothing is declared in it yet."""
    with sandbox_in(tmp_path_factory.mktemp("sandbox")) as chain:
        yield chain


@pytest.fixture(scope="session")
def stack(chain: Chain) -> Chain:
    """The sandbox with the shared stack up, whose job has been submitted."""
    chain.engine_on(shared()).up(ignore)
    return chain


@pytest.fixture(scope="session")
def followed(stack: Chain) -> Generator[Followed]:
    """`multislice logs --follow` of the shared job, from before its crash to its end."""
    with following(stack, JOB) as followed:
        yield followed

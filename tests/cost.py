"""How much CPU time each test may use, and how much it used.

A test costs what its process and the processes that it has waited for use while it and its own fixtures run. Fixtures
that several tests share are not charged to any of them, and neither is the import of a large library to the first test
that needs it.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path

import pytest

from sandbox.programs import cache_folder

FOLDER = cache_folder().parent / "tests"
"""Where a run of the tests keeps for the next one what each test cost."""
USUAL_CPU_SECONDS = 3.0
"""The most that a test of `make test` may use unless it is marked `costs(cpu_seconds)`, on a core that needs
`_LOOP_SECONDS` for `_loop`. A slower core gets proportionally more."""
_LOOP_SECONDS = 0.05
_LOOPS = 3
_LARGE_LIBRARY_MODULES = 50
RECORD_VARIABLE = "TEST_COSTS"
"""Environment variable that names the file to which a run writes its `Record`, as JSON.

Such a run fails no test for its cost: in a process of thousands of tests, on cores that others use as well, the same
test takes several times the CPU time. Whoever reads the record runs the tests over their limit again, alone.
"""


@dataclass
class Record:
    """What a run knows of its tests' costs."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    """CPU seconds of each test."""
    over: list[str] = field(default_factory=list[str])
    """Tests that used more than they may."""


_USED = pytest.StashKey[float]()
_RECORD = pytest.StashKey[Record]()


def pytest_configure(config: pytest.Config) -> None:
    """Begin the record of this run."""
    config.stash[_RECORD] = Record()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Charge a test for the fixtures that are made for it."""
    before = _cpu_seconds()
    try:
        return (yield)
    finally:
        if fixturedef.scope == "function":
            _charge(request.node, _cpu_seconds() - before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Charge a test for its own run; if that is too much, fail it by name or record it."""
    before, modules = _cpu_seconds(), len(sys.modules)
    try:
        result = yield
    finally:
        used = _charge(item, _cpu_seconds() - before)
    allowed, imported = _allowed(item), len(sys.modules) - modules
    # The speed of this core is measured only when it matters.
    if allowed is not None and used > allowed and imported < _LARGE_LIBRARY_MODULES and used > allowed * _slowness():
        if RECORD_VARIABLE in os.environ:
            item.config.stash[_RECORD].over.append(item.nodeid)
            return result
        pytest.fail(
            f"{item.nodeid} used {used:.1f} CPU seconds on a core that takes {_slowness():.1f} times as long as usual,"
            f" and tests of `make test` may use {allowed:g} on a usual one. Make it cheaper,"
            " or mark it `complete`, so that it runs in `make test-all`; `costs(cpu_seconds=N)` allows it more",
            pytrace=False,
        )
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the record to the file that the environment names, if it names one."""
    if path := os.environ.get(RECORD_VARIABLE):
        Path(path).write_text(json.dumps(asdict(session.config.stash[_RECORD])))


def _charge(item: pytest.Item, seconds: float) -> float:
    """Add to what the test has used; the sum."""
    used = item.stash.get(_USED, 0.0) + seconds
    item.stash[_USED] = item.config.stash[_RECORD].seconds[item.nodeid] = used
    return used


def _allowed(item: pytest.Item) -> float | None:
    """CPU seconds that the test may use; `None` if there is no limit."""
    if item.get_closest_marker("complete"):
        return None
    costs = item.get_closest_marker("costs")
    return float(costs.kwargs["cpu_seconds"]) if costs else USUAL_CPU_SECONDS


def _cpu_seconds() -> float:
    """User and system time of this process and of all children that it has waited for."""
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@cache
def _slowness() -> float:
    """Return how many times as long as usual this core takes; at least 1."""
    seconds: list[float] = []
    for _ in range(_LOOPS):
        before = time.process_time()
        _loop()
        seconds.append(time.process_time() - before)
    return max(1.0, min(seconds) / _LOOP_SECONDS)


def _loop() -> None:
    texts = sorted(str(number * 7919 % 10007) for number in range(100_000))
    assert {text: len(text) for text in texts}

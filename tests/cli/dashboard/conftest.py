import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path

import pytest

from cli.dashboard.feed import Feed
from cli.dashboard.server import Dashboard
from cli.observed.snapshot import Snapshot
from tests.cli.dashboard.stacks import snapshot


def wait_for(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


class Stack:
    """What there is to see, and how often somebody looked."""

    def __init__(self, folder: Path) -> None:
        self.snapshot = snapshot(folder)
        self.looks = 0

    def look(self) -> Snapshot:
        self.looks += 1
        return self.snapshot


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stack:
    monkeypatch.setattr("cli.dashboard.feed.LOOK_SECONDS", 0.05)
    return Stack(tmp_path)


@pytest.fixture
def server(stack: Stack) -> Generator[Dashboard]:
    feed = Feed(stack.look)
    made = Dashboard(feed, 0)
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    feed.start()
    thread.start()
    yield made
    feed.close()
    made.shutdown()
    thread.join()
    made.server_close()

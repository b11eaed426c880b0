"""Peers in processes of their own that die or stop."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

import numpy as np
import pytest

from tests.workloads.group.peer import SIZE
from tests.workloads.group.slices import FLOAT32
from workloads.group.exchange import Exchange
from workloads.group.frames import Aborted
from workloads.group.links import Links

NOTICED_SECONDS = 0.2


class Pair:
    """Slice 0 in this process, which sums with slice 1 in another one in a thread of this process."""

    def __init__(self, exchange: Exchange, peer: subprocess.Popen[str]):
        self.peer, self.stop, self.steps = peer, threading.Event(), 0
        self.error: Exception | None = None
        self.ended = 0.0
        self.thread = threading.Thread(target=self._sum, args=(exchange,))
        self.thread.start()
        while self.steps < 2:
            time.sleep(0.01)

    def _sum(self, exchange: Exchange) -> None:
        part, out = np.ones(SIZE, np.float32), np.empty(SIZE, np.float32)
        try:
            for step in count():
                exchange.sum(step, {0: part}, {0: 0, 1: 1}, FLOAT32, out, self.stop)
                self.steps += 1
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.ended, self.error = time.monotonic(), error


@contextmanager
def pair() -> Generator[Pair]:
    command = [sys.executable, "-m", "tests.workloads.group.peer"]
    with (
        Links(0, "127.0.0.1", "group") as links,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as peer,
    ):
        try:
            assert peer.stdin
            assert peer.stdout
            address = peer.stdout.readline().strip()
            peer.stdin.write(f"{links.address}\n")
            peer.stdin.flush()
            with Exchange(links, {0: links.address, 1: address}, 0) as exchange:
                made = Pair(exchange, peer)
                yield made
                made.thread.join()
        finally:
            peer.kill()


@pytest.mark.parametrize("seconds", [0.0, 0.013, 0.026, 0.039])
def test_a_killed_process_is_noticed_at_once(seconds: float) -> None:
    with pair() as both:
        time.sleep(seconds)
        both.peer.kill()
        killed = time.monotonic()
        both.thread.join(10)
        assert isinstance(both.error, Aborted)
        assert both.ended - killed < NOTICED_SECONDS


def test_a_sum_with_a_stopped_process_ends_when_it_is_told_to() -> None:
    with pair() as both:
        both.peer.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        assert both.error is None
        stopped = time.monotonic()
        both.stop.set()
        both.thread.join(10)
        assert isinstance(both.error, Aborted)
        assert both.ended - stopped < NOTICED_SECONDS

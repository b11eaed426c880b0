"""Shows the changing snapshot: a live screen on a terminal, timestamped lines anywhere else."""

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Self

from rich.console import Console
from rich.live import Live

from cli.view import plain
from cli.view.render import screen
from cli.view.snapshot import Snapshot

_REFRESHES_PER_SECOND = 8

Change = Callable[[Snapshot], Snapshot]


class Display:
    """Holds the current snapshot; any thread may change it."""

    def __init__(self, console: Console, snapshot: Snapshot) -> None:
        """Nothing is shown yet."""
        self.console = console
        self.snapshot = snapshot
        self._changed = threading.Condition()
        self._live = Live(
            get_renderable=lambda: screen(self.snapshot, time.time(), console.width),
            console=console,
            refresh_per_second=_REFRESHES_PER_SECOND,
        )

    @contextmanager
    def shown(self) -> Generator[Self]:
        """Show it until the context ends; the last screen stays."""
        if not self.console.is_terminal:
            yield self
            return
        with self._live:
            yield self

    def change(self, change: Change) -> None:
        """Replace the snapshot and tell everyone who waits."""
        with self._changed:
            before, self.snapshot = self.snapshot, change(self.snapshot)
            if not self.console.is_terminal:
                stamp = time.strftime("%H:%M:%S")
                for line in plain.lines(before, self.snapshot):
                    self.console.print(f"{stamp}  {line}", markup=False, highlight=False, soft_wrap=True)
            self._changed.notify_all()

    def wait_until(self, reached: Callable[[Snapshot], bool], timeout_seconds: float) -> bool:
        """Block until the snapshot satisfies `reached`; False when the time is over before."""
        with self._changed:
            return self._changed.wait_for(lambda: reached(self.snapshot), timeout_seconds)

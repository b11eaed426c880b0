"""What the page shows, looked at again and again while somebody has it open."""

import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cli.explain.explain import explain
from cli.observed.json import as_json
from cli.observed.snapshot import Job, Snapshot
from cli.observed.summary import summary

LOOK_SECONDS = 2.0
"""Between two looks."""
_MOST_EVENTS = 50


class Feed:
    """The newest state as JSON, for any number of readers."""

    def __init__(self, look: Callable[[], Snapshot]) -> None:
        """`look` is called in a thread of the feed, and never while nobody reads. What it raises ends the feed."""
        self._look = look
        self._changed = threading.Condition()
        self._readers = 0
        self._version, self._state = 0, ""
        self._last: Snapshot | None = None
        self._closed = threading.Event()
        self.failed = False
        """What it shows could not be told; why is on stderr."""
        self._thread = threading.Thread(target=self._run, name="dashboard feed", daemon=True)

    def start(self) -> None:
        """Begin to look, as soon as somebody reads."""
        self._thread.start()

    def close(self) -> None:
        """Look no more; whoever waits is told so."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def idle(self) -> bool:
        """Whether nobody reads."""
        return self._readers == 0

    def wait(self) -> None:
        """Until it is closed."""
        self._closed.wait()

    @contextmanager
    def reading(self) -> Generator[int]:
        """Be somebody who reads; gives the version after which states are news.

        What was seen before nobody read is none: it may be hours old.
        """
        with self._changed:
            seen = 0 if self._readers else self._version
            self._readers += 1
            self._changed.notify_all()
        try:
            yield seen
        finally:
            with self._changed:
                self._readers -= 1

    def after(self, version: int, timeout_seconds: float) -> tuple[int, str] | None:
        """The newest state, if it is later than `version`; None: nothing new came in that time."""
        with self._changed:
            self._changed.wait_for(lambda: self._version > version or self.closed, timeout_seconds)
            return (self._version, self._state) if self._version > version else None

    def _run(self) -> None:
        try:
            while not self.closed:
                with self._changed:
                    self._changed.wait_for(lambda: self._readers > 0 or self.closed)
                if not self.closed:
                    self._tell(self._look())
                    self._closed.wait(LOOK_SECONDS)
        except BaseException:
            self.failed = True
            raise
        finally:
            # Nobody shall wait for a thread that has died.
            self.close()

    def _tell(self, seen: Snapshot) -> None:
        # While the cluster is away the page keeps what it saw last, and says so.
        shown = seen if seen.answered or self._last is None else replace(self._last, answered=False, notes=seen.notes)
        self._last = shown
        with self._changed:
            self._version, self._state = self._version + 1, as_json(state(shown), indent=None)
            self._changed.notify_all()


def state(snapshot: Snapshot) -> Mapping[str, object]:
    """All that the page shows."""
    return {
        "at": snapshot.at,
        "stack": snapshot.stack,
        "cluster": snapshot.cluster,
        "answered": snapshot.answered,
        "usd_per_hour": snapshot.usd_per_hour,
        "nodes": [{**vars(node), "usable": node.usable} for node in snapshot.nodes],
        "hostless": snapshot.hostless,
        "queues": [{**vars(queue), "active": queue.active} for queue in snapshot.queues],
        "jobs": [_job(snapshot, job) for job in snapshot.jobs],
        "notes": snapshot.notes,
    }


def _job(snapshot: Snapshot, job: Job) -> Mapping[str, object]:
    return {
        "summary": summary(job, snapshot.at),
        "findings": explain(snapshot, job),
        "losses": job.files.training.losses,
        "held_out_loss": job.files.training.held_out_loss,
        "goodput": job.files.goodput,
        "starts": job.files.starts,
        "failures": job.files.failures,
        "hosts": job.pods,
        "events": job.events[:_MOST_EVENTS],
    }

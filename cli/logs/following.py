"""Follows the output of a job's hosts until the job has ended: over restarts, evictions and broken connections.

A restarted host is a new pod, whose log is read from its first line, steps that are done again among them. No line is
told twice or left out as long as the cluster has it.
"""

import queue
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from cli.logs.pod_log import PodLog, Source
from cli.logs.reading import WHOLE, Line, Reading, Window
from cli.observed.outcome import DELETED, Outcome, outcome_of
from cli.observed.pod import leader_of, newest, pod_of, pods_of
from infra.kubernetes import UNREACHABLE, ApiServer, Json, Watch
from infra.names import JOBSET_LABEL, JOBSETS, PODS

type Which = Callable[[str, str], bool]
"""Whether the output of a host is wanted, by its name within the job, such as `slice-0-1`, and the leader's."""

_POLL_SECONDS = 0.2
_SILENCE_SECONDS = 120.0
_LAST_WORDS_SECONDS = 30.0
"""After the job's end its hosts are waited for so long; who has not ended by then is told to, or cannot be reached."""


def leader(name: str, leading: str) -> bool:
    """The leader alone, see `leader_of`."""
    return name == leading


def hosts(_: str, __: str) -> bool:
    """All of them."""
    return True


def host(name: str) -> Which:
    """The one of that name alone."""
    return lambda other, _: other == name


def follow(
    api: ApiServer,
    namespace: str,
    jobset: str,
    which: Which,
    on_line: Callable[[Line], None],
    window: Window = WHOLE,
) -> Outcome:
    """Call `on_line`, in this thread, with each line that those hosts print; how the job ended.

    `window` is the part to begin with of the pods that are there at first.

    Raises:
        LookupError: there is no such JobSet.
        ApiError, urllib3.exceptions.HTTPError, OSError: the API server cannot be asked at first, or lets this user
            read no log. When it is away later on it is asked until it answers.
    """
    following = _Following(api, namespace, jobset, which, window)
    following.begin()
    try:
        return following.run(on_line)
    finally:
        following.end()


@dataclass
class _Following:
    api: ApiServer
    namespace: str
    jobset: str
    which: Which
    window: Window
    _lines: "queue.Queue[Line]" = field(default_factory=lambda: queue.Queue[Line](maxsize=10_000))
    _logs: dict[str, PodLog] = field(default_factory=dict[str, PodLog])
    """By uid of the pod."""
    _passed: set[str] = field(default_factory=set[str])
    """Pods of earlier starts that were leaving at first."""
    _uid: str = ""
    _leader: str = ""
    _outcome: Outcome | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _watches: list[Watch] = field(default_factory=list[Watch])

    def begin(self) -> None:
        found = self.api.find(f"{JOBSETS.format(self.namespace)}/{self.jobset}")
        if found is None:
            raise LookupError(f"no JobSet {self.jobset} in namespace {self.namespace}")
        self._uid, self._leader, self._outcome = found["metadata"]["uid"], leader_of(found), outcome_of(found)
        self._take_those_there()
        named = {"fieldSelector": f"metadata.name={self.jobset}"}
        self._watch(JOBSETS.format(self.namespace), named, self._jobset_changed, self._jobset_removed)
        of_job = {"labelSelector": f"{JOBSET_LABEL}={self.jobset}"}
        self._watch(PODS.format(self.namespace), of_job, self._pod_changed, self._pod_removed)

    def run(self, on_line: Callable[[Line], None]) -> Outcome:
        last_words: float | None = None
        while True:
            try:
                on_line(self._lines.get(timeout=_POLL_SECONDS))
                continue
            except queue.Empty:
                self._see_that_it_is_allowed()
            if self._outcome and last_words is None:
                last_words = time.monotonic() + _LAST_WORDS_SECONDS
                self._look_once_more()
            elif self._outcome and last_words and (self._all_told() or time.monotonic() > last_words):
                return self._outcome

    def end(self) -> None:
        for watch in self._watches:
            watch.close()
        for log in self._logs.values():
            log.stop()

    def _see_that_it_is_allowed(self) -> None:
        with self._lock:
            refused = [log.refused for log in self._logs.values() if log.refused]
        if refused:
            raise refused[0]

    def _all_told(self) -> bool:
        with self._lock:
            return all(log.told or not log.begun for log in self._logs.values()) and self._lines.empty()

    def _take_those_there(self) -> None:
        """Of each host the newest pod; those that a restart is about to replace have been."""
        there = self._listed()
        kept = {pod.uid for pod in newest(there, 0.0)}
        self._passed = {pod["metadata"]["uid"] for pod in there} - kept
        for pod in there:
            self._take(pod, self.window)

    def _look_once_more(self) -> None:
        """The word of the JobSet's end may come before that of its last pods."""
        try:
            there = self._listed()
        except UNREACHABLE:
            return
        for pod in there:
            self._take(pod, WHOLE)

    def _listed(self) -> Iterable[Json]:
        return pods_of(self.api, self.namespace, self.jobset)

    def _watch(
        self, path: str, selector: dict[str, str], changed: Callable[[Json], None], removed: Callable[[Json], None]
    ) -> None:
        watch = Watch(self.api, path, selector, changed, removed, _SILENCE_SECONDS)
        self._watches.append(watch)
        threading.Thread(target=watch.run, name=f"watch of {path}", daemon=True).start()

    def _jobset_changed(self, found: Json) -> None:
        if found["metadata"]["uid"] == self._uid:
            self._outcome = outcome_of(found) or self._outcome
        else:
            self._outcome = self._outcome or DELETED

    def _jobset_removed(self, found: Json) -> None:
        if found["metadata"]["uid"] == self._uid:
            self._outcome = self._outcome or DELETED

    def _pod_changed(self, found: Json) -> None:
        self._take(found, WHOLE)

    def _pod_removed(self, found: Json) -> None:
        with self._lock:
            if log := self._logs.get(found["metadata"]["uid"]):
                log.gone()

    def _take(self, found: Json, window: Window) -> None:
        """Follow the pod's log if it is wanted, and tell its follower what became of it."""
        uid = found["metadata"]["uid"]
        with self._lock:
            log = self._logs.get(uid)
            if log is None and uid not in self._passed and self.which(pod_of(found, 0.0).host, self._leader):
                source = Source.of(self.api, found)
                log = PodLog(source, Reading(window), self._lines.put, self._newest_of(source.pod.host))
                self._logs[uid] = log
                log.start()
            if log is not None:
                log.seen(found)

    def _newest_of(self, name: str) -> PodLog | None:
        earlier = [log for log in self._logs.values() if log.source.pod.host == name]
        return earlier[-1] if earlier else None

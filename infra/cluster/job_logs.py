"""Reads and follows the logs of a job's hosts until the job ends, across restarts, evictions and lost connections.

A restarted host is a new pod, whose log is read from its first line, including steps that it repeats. The log of a pod
that stays has several attempts, with a line before each. No line is repeated or left out as long as the cluster has it.
The API server adds a time stamp to each line, but a request can start only at a whole second. So a new connection
starts one second before the newest line, and lines of that period that were already read are skipped. Counting lines
would not work: kubelet starts a new file when one is full, and deletes the old one.
"""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import urllib3

from infra.cluster.job_pods import POD_LABELS, Pod, newest, pod_of, pods_of
from infra.cluster.job_state import DELETED, Outcome, as_jobset, leader_of, outcome_of
from infra.cluster.kubernetes import UNREACHABLE, ApiError, ApiServer, Json, Watch, shut
from infra.stack.manifests import Object
from infra.stack.names import COLLECTIONS, PODS, SUPERVISOR
from workloads.spec import ATTEMPT_BEGINS

_MARGIN = timedelta(seconds=1)
"""Standard output and standard error get separate time stamps, so a line may arrive slightly after a later one."""
_RETRY_SECONDS = 0.5
_SILENCE_SECONDS = 60.0
"""Seconds without data after which a log connection is reopened, in case it is dead."""
_WATCH_SILENCE_SECONDS = 120.0
_OVERLAP_SECONDS = 5.0
"""Time to keep reading the log of a host's earlier pod once its later pod runs: the pod is then gone or unreachable."""
_LAST_LINES_SECONDS = 30.0
"""Time to wait for hosts after the end of the job. Hosts that have not ended by then are unreachable."""
_POLL_SECONDS = 0.2
_MAX_LINES = 10_000
"""Number of lines to buffer when they arrive faster than they are consumed."""
_ENDED = ("Succeeded", "Failed")

type Which = Callable[[str, str], bool]
"""Returns whether to read a host's log, from its name within the job, such as `slice-0-1`, and the leader's name."""


def leader(name: str, leading: str) -> bool:
    """Select the leader, see `leader_of`; all hosts of a job without one."""
    return leading in (name, "")


def hosts(_: str, __: str) -> bool:
    """Select all hosts."""
    return True


def host(name: str) -> Which:
    """Select the host of that name."""
    return lambda other, _: other == name


@dataclass(frozen=True)
class Line:
    """One line of a host's output."""

    host: str
    """Name of the host within its job, such as `slice-0-1`."""
    attempt: int | None
    """Number of restarts of the job before this attempt. `None`: the lines that were read do not say it."""
    at: str
    """Time at which it was written, from the API server. Empty for messages of kubelet itself."""
    text: str


@dataclass(frozen=True)
class Window:
    """The part of a log at which to start."""

    tail_lines: int | None = None
    """Number of last lines; `None` for all."""
    since: datetime | None = None
    """Time of the first line; `None` for any."""

    def query(self) -> dict[str, str]:
        """Return the window as query parameters of the API server."""
        asked = {"timestamps": "true"}
        if self.tail_lines is not None:
            asked["tailLines"] = str(self.tail_lines)
        if self.since is not None:
            asked["sinceTime"] = f"{self.since.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        return asked


WHOLE = Window()


def follow(
    api: ApiServer,
    namespace: str,
    jobset: str,
    which: Which,
    on_line: Callable[[Line], None],
    window: Window = WHOLE,
    kind: str = "JobSet",
) -> Outcome:
    """Call `on_line`, in this thread, with each line of the selected hosts, and return how the job ended.

    `window` is the part at which to start for pods that already exist, and `kind` that of the job in `COLLECTIONS`.

    Raises:
        LookupError: there is no such job.
        ApiError, urllib3.exceptions.HTTPError, OSError: the first requests fail, or this user may not read any log.
            Later outages are retried until the API server answers.
    """
    following = _Following(api, namespace, jobset, which, window, kind)
    following.begin()
    try:
        return following.run(on_line)
    finally:
        following.end()


@dataclass
class Reading:
    """How much of one container's log has been read."""

    window: Window
    _first: str = ""
    _newest: datetime | None = None
    _recent: Counter[str] = field(default_factory=Counter[str])
    """Lines that a new connection would repeat."""

    def query(self) -> dict[str, str]:
        """Return the query for the next connection."""
        return (self.window if self._newest is None else Window(since=self._newest - _MARGIN)).query()

    def connection(self) -> Callable[[str], bool]:
        """Begin a connection. Return a function that says whether a line is new; call it once per line, in order."""
        again = Counter(self._recent)

        def is_new(line: str) -> bool:
            if again[line]:
                again[line] -= 1
                return False
            stamp = line.partition(" ")[0]
            written = _time_of(stamp)
            if written is not None and self._first and stamp < self._first:
                # The window excluded it.
                return False
            self._remember(line, written)
            return True

        return is_new

    def _remember(self, line: str, written: datetime | None) -> None:
        self._recent[line] += 1
        if written is None:
            return
        self._first = self._first or line.partition(" ")[0]
        second = written.replace(microsecond=0)
        if self._newest is None or second > self._newest:
            self._newest = second
            since = second - _MARGIN
            kept = {line: count for line, count in self._recent.items() if (_time_of(line) or since) >= since}
            self._recent = Counter(kept)


def _time_of(line: str) -> datetime | None:
    try:
        return datetime.fromisoformat(line.partition(" ")[0]).astimezone(UTC)
    except ValueError:
        return None


@dataclass(frozen=True)
class Source:
    """The log of one pod."""

    api: ApiServer
    pod: Pod
    container: str
    stays: bool
    """Whether the pod stays when its program ends, so that its log has several attempts."""

    @classmethod
    def of(cls, api: ApiServer, found: Object) -> "Source":
        """Return the log of a pod's first container, which is the job's."""
        container = found["spec"]["containers"][0]
        stays = SUPERVISOR in [*container.get("command", ()), *container.get("args", ())]
        return cls(api, pod_of(found, 0.0), container["name"], stays)

    def read(self, window: Window) -> Iterator[Line]:
        """Yield the lines that exist now.

        Raise ApiError, urllib3.exceptions.HTTPError or OSError if the log cannot be read.
        """
        answer, parse = self.open(window.query()), self.parser()
        try:
            for raw in answer:
                yield parse(raw.decode(errors="replace").rstrip("\n"))
        finally:
            answer.close()

    def open(self, query: dict[str, str]) -> urllib3.BaseHTTPResponse:
        """Open the log. Raises the same errors as `read`."""
        path = f"{PODS.format(self.pod.namespace)}/{self.pod.name}/log"
        return self.api.open(path, {**query, "container": self.container}, _SILENCE_SECONDS)

    def parser(self) -> Callable[[str], Line]:
        """Return a function that parses lines of the API server, in order: a time, a space, the text."""
        attempt = None if self.stays else self.pod.attempt

        def parse(raw: str) -> Line:
            nonlocal attempt
            stamp, _, text = raw.partition(" ")
            if _time_of(stamp) is None:
                stamp, text = "", raw
            if self.stays and (begins := ATTEMPT_BEGINS.fullmatch(text)):
                attempt = int(begins[1]) - 1
            return Line(self.pod.host, attempt, stamp, text)

        return parse


@dataclass
class PodLog:
    """Follows one pod's log to its end, in a separate thread."""

    source: Source
    reading: Reading
    on_line: Callable[[Line], None]
    earlier: "PodLog | None"
    """Log of the same host's earlier pod, whose lines come first."""
    refused: ApiError | None = None
    """Error if this user may not read the log."""
    _begun: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _response: urllib3.BaseHTTPResponse | None = None

    def __post_init__(self) -> None:
        self._parse = self.source.parser()
        self._thread = threading.Thread(target=self._follow, name=self.source.pod.name, daemon=True)

    def start(self) -> None:
        """Start reading as soon as the log exists."""
        self._thread.start()

    def seen(self, found: Object) -> None:
        """Record that the pod has changed."""
        states = [status["state"] for status in found.get("status", {}).get("containerStatuses", [])]
        if found.get("status", {}).get("phase") in _ENDED:
            self._ended.set()
        if self._ended.is_set() or any("running" in state or "terminated" in state for state in states):
            self._begun.set()

    def gone(self) -> None:
        """Record that the pod was deleted: what cannot be read now can never be read."""
        self._ended.set()
        self._begun.set()

    def stop(self) -> None:
        self._stopped.set()
        self._begun.set()
        shut(self._response)

    @property
    def is_complete(self) -> bool:
        """Return whether everything that ever can be read has been read."""
        return not self._thread.is_alive()

    @property
    def has_begun(self) -> bool:
        """Return whether the container ever ran."""
        return self._begun.is_set()

    def join(self, timeout_seconds: float) -> None:
        self._thread.join(timeout_seconds)

    def _follow(self) -> None:
        self._begun.wait()
        if self.earlier:
            self.earlier.join(_OVERLAP_SECONDS)
            self.earlier.stop()
        while not self._stopped.is_set():
            # Checked before reading, so that the last lines of a container are read as well.
            ended = self._ended.is_set()
            try:
                self._read(follow=not ended)
                whole = True
            except ApiError as error:
                if error.status in (401, 403):
                    self.refused = error
                    return
                # 404: the pod is gone. 400: its container never started.
                whole = error.status in (400, 404)
            except UNREACHABLE:
                whole = False
            if ended and whole:
                return
            self._stopped.wait(_RETRY_SECONDS)

    def _read(self, *, follow: bool) -> None:
        is_new = self.reading.connection()
        self._response = self.source.open({**self.reading.query(), "follow": "true" if follow else "false"})
        try:
            for raw in self._response:
                if self._stopped.is_set():
                    return
                line = raw.decode(errors="replace")
                # Half a line at a break is left to the next connection. At the end it is the last line.
                if (line.endswith("\n") or not follow) and is_new(line.rstrip("\n")):
                    self.on_line(self._parse(line.rstrip("\n")))
        finally:
            self._response.close()
            self._response = None


@dataclass
class _Following:
    api: ApiServer
    namespace: str
    jobset: str
    which: Which
    window: Window
    kind: str
    _lines: "queue.Queue[Line]" = field(default_factory=lambda: queue.Queue[Line](_MAX_LINES))
    _logs: dict[str, PodLog] = field(default_factory=dict[str, PodLog])
    _passed: set[str] = field(default_factory=set[str])
    """Pods of earlier starts that were already terminating at the beginning."""
    _uid: str = ""
    _leader: str = ""
    _outcome: Outcome | None = None
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _watches: list[Watch] = field(default_factory=list[Watch])

    def begin(self) -> None:
        path = COLLECTIONS[self.kind]
        found = self.api.find(f"{path.format(self.namespace)}/{self.jobset}")
        if found is None:
            raise LookupError(f"no {self.kind} {self.jobset} in namespace {self.namespace}")
        jobset = as_jobset(found)
        self._uid, self._leader, self._outcome = found["metadata"]["uid"], leader_of(jobset), outcome_of(jobset)
        pods = self._take_first_pods()
        named = {"fieldSelector": f"metadata.name={self.jobset}"}
        self._watch(path, named, self._jobset_changed, self._jobset_removed, [found])
        of_job = {"labelSelector": f"{POD_LABELS[self.kind]}={self.jobset}"}
        self._watch(PODS, of_job, lambda pod: self._take(pod, WHOLE), self._pod_removed, pods)

    def run(self, on_line: Callable[[Line], None]) -> Outcome:
        deadline: float | None = None
        while True:
            try:
                on_line(self._lines.get(timeout=_POLL_SECONDS))
                continue
            except queue.Empty:
                self._require_allowed()
            if self._outcome and deadline is None:
                deadline = time.monotonic() + _LAST_LINES_SECONDS
                self._take_last_pods()
            elif self._outcome and deadline and (self._is_complete() or time.monotonic() > deadline):
                return self._outcome

    def end(self) -> None:
        for watch in self._watches:
            watch.close()
        for log in self._logs.values():
            log.stop()

    def _require_allowed(self) -> None:
        with self._lock:
            refused = [log.refused for log in self._logs.values() if log.refused]
        if refused:
            raise refused[0]

    def _is_complete(self) -> bool:
        with self._lock:
            return all(log.is_complete or not log.has_begun for log in self._logs.values()) and self._lines.empty()

    def _take_first_pods(self) -> list[Json]:
        """Follow the newest pod of each host. A restart is about to replace the others. Return all pods."""
        present = pods_of(self.api, self.namespace, self.jobset, self.kind)
        self._passed = {pod["metadata"]["uid"] for pod in present} - {pod.uid for pod in newest(present, 0.0)}
        for pod in present:
            self._take(pod, self.window)
        return present

    def _take_last_pods(self) -> None:
        """List pods once more: the end of the JobSet may be reported before the end of its last pods."""
        try:
            present = pods_of(self.api, self.namespace, self.jobset, self.kind)
        except UNREACHABLE:
            return
        for pod in present:
            self._take(pod, WHOLE)

    def _watch(
        self,
        path: str,
        selector: dict[str, str],
        changed: Callable[[Json], None],
        removed: Callable[[Json], None],
        present: Sequence[Json],
    ) -> None:
        """Watch in a thread. Objects `present` that are gone before its first list count as removed."""
        known = {item["metadata"]["uid"]: item for item in present}
        watch = Watch(self.api, path.format(self.namespace), selector, changed, removed, _WATCH_SILENCE_SECONDS, known)
        self._watches.append(watch)
        threading.Thread(target=watch.run, name=f"watch of {path}", daemon=True).start()

    def _jobset_changed(self, found: Json) -> None:
        if found["metadata"]["uid"] == self._uid:
            self._outcome = outcome_of(as_jobset(found)) or self._outcome
        else:
            self._outcome = self._outcome or DELETED

    def _jobset_removed(self, found: Json) -> None:
        if found["metadata"]["uid"] == self._uid:
            self._outcome = self._outcome or DELETED

    def _pod_removed(self, found: Json) -> None:
        with self._lock:
            if log := self._logs.get(found["metadata"]["uid"]):
                log.gone()

    def _take(self, found: Json, window: Window) -> None:
        """Follow the pod's log if it is selected, and notify its follower that the pod has changed."""
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

"""The log of one pod, from the API server."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import urllib3

from cli.logs.reading import Line, Reading, Window, moment
from cli.observed.objects import Object
from cli.observed.pod import Pod, pod_of
from infra.kubernetes import UNREACHABLE, ApiError, ApiServer, lines
from infra.names import PODS

_RETRY_SECONDS = 0.5
_SILENCE_SECONDS = 60.0
"""A connection that says nothing for so long is opened anew, in case it is dead."""
_OVERLAP_SECONDS = 5.0
"""A host's earlier pod is read for so long after its later one began; it is gone then, or cannot be reached."""

_ENDED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Source:
    """Where one pod's log is."""

    api: ApiServer
    pod: Pod
    container: str

    @classmethod
    def of(cls, api: ApiServer, found: Object) -> "Source":
        """The log of a pod's first container, which is the job's."""
        return cls(api, pod_of(found, 0.0), found["spec"]["containers"][0]["name"])

    @property
    def path(self) -> str:
        return f"{PODS.format(self.pod.namespace)}/{self.pod.name}/log"

    def read(self, window: Window, *, previous: bool = False) -> Iterator[Line]:
        """What is there now.

        Raises:
            ApiError, urllib3.exceptions.HTTPError, OSError: it cannot be read.
        """
        asked = {**window.query(), "container": self.container, **({"previous": "true"} if previous else {})}
        answer = self.api.open(self.path, asked, _SILENCE_SECONDS)
        try:
            for raw in lines(answer):
                yield self.line(raw.decode(errors="replace").rstrip("\n"))
        finally:
            answer.close()

    def line(self, raw: str) -> Line:
        """A line as the API server writes it: its time, a space, its text."""
        stamp, _, text = raw.partition(" ")
        if moment(stamp) is None:
            return Line(self.pod.host, self.pod.attempt, "", raw)
        return Line(self.pod.host, self.pod.attempt, stamp, text)


@dataclass
class PodLog:
    """Follows one pod's log to its end, in a thread of its own."""

    source: Source
    reading: Reading
    tell: Callable[[Line], None]
    earlier: "PodLog | None"
    """Of the same host, whose lines come first."""
    _begun: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _response: urllib3.BaseHTTPResponse | None = None
    refused: ApiError | None = None
    """Why it may not be read, by this user."""

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._follow, name=self.source.pod.name, daemon=True)

    def start(self) -> None:
        """Begin to read as soon as there is something to read."""
        self._thread.start()

    def seen(self, found: Object) -> None:
        """The pod has changed."""
        states = [status["state"] for status in found.get("status", {}).get("containerStatuses", [])]
        if found.get("status", {}).get("phase") in _ENDED:
            self._ended.set()
        if self._ended.is_set() or any("running" in state or "terminated" in state for state in states):
            self._begun.set()

    def gone(self) -> None:
        """The pod is no longer there: what cannot be read now never will be."""
        self._ended.set()
        self._begun.set()

    def stop(self) -> None:
        """Read no further."""
        self._stopped.set()
        self._begun.set()
        response = self._response
        if response is not None:
            try:
                response.shutdown()
            except (ValueError, RuntimeError):
                return  # It had ended by itself.

    @property
    def told(self) -> bool:
        """Whether all has been read that ever will be."""
        return not self._thread.is_alive()

    @property
    def begun(self) -> bool:
        """Whether its container ever ran."""
        return self._begun.is_set()

    def _follow(self) -> None:
        self._begun.wait()
        if self.earlier:
            self.earlier.join(_OVERLAP_SECONDS)
            self.earlier.stop()
        while not self._stopped.is_set():
            # Asked before reading, so that the last words of a container are read as well.
            ended = self._ended.is_set()
            try:
                whole = self._read(follow=not ended)
            except ApiError as fault:
                if fault.status in (401, 403):
                    self.refused = fault
                    return
                # 404: the pod is gone; 400: its container never began.
                whole = fault.status in (400, 404)
            except UNREACHABLE:
                whole = False
            if ended and whole:
                return
            self._stopped.wait(_RETRY_SECONDS)

    def join(self, timeout_seconds: float) -> None:
        """Wait until all has been read."""
        self._thread.join(timeout_seconds)

    def _read(self, *, follow: bool) -> bool:
        """Tell what is new until the connection ends; whether it ended with the log."""
        asked = {**self.reading.query(), "container": self.source.container, "follow": "true" if follow else "false"}
        is_new = self.reading.connection()
        self._response = self.source.api.open(self.source.path, asked, _SILENCE_SECONDS)
        try:
            for raw in lines(self._response):
                if self._stopped.is_set():
                    return True
                line = raw.decode(errors="replace")
                # A piece of a line at a break is left for the next connection; at the end it is the last line.
                if (line.endswith("\n") or not follow) and is_new(line.rstrip("\n")):
                    self.tell(self.source.line(line.rstrip("\n")))
        finally:
            self._response.close()
            self._response = None
        return True

"""`multislice logs` prints the output of a job's hosts."""

import heapq
import json
import re
import sys
from collections.abc import Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from cli.answer import NEGATIVE, Halt
from cli.deployed import Deployed, JobRef
from cli.sandbox_folder import find_sandbox
from infra.cluster.job_logs import WHOLE, Line, Source, Which, Window, follow, host, hosts, leader
from infra.cluster.job_pods import newest, pods_of
from infra.cluster.job_state import LEADER, Outcome, as_jobset, leader_of, outcome_of
from infra.cluster.kubernetes import UNREACHABLE, ApiError, Json
from infra.stack.names import COLLECTIONS, HEAD
from workloads.spec import ATTEMPT_BEGINS
from workloads.terminal import inert

if TYPE_CHECKING:
    from sandbox.site import Site

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
"""Colours of host names. If there are few hosts, each has its own."""


@dataclass(frozen=True)
class Selection:
    """Selection of log lines on the command line."""

    job: str | None
    all_hosts: bool
    host: str | None
    follow: bool
    previous: bool
    """Whether to read the attempt before the newest one."""
    tail_lines: int | None
    since: timedelta | None
    as_json: bool

    @property
    def which(self) -> Which:
        if self.host:
            return host(self.host)
        return hosts if self.all_hosts else leader

    def window(self) -> Window:
        return Window(self.tail_lines, datetime.now(UTC) - self.since if self.since else None)


def span(text: str) -> timedelta:
    """Parse a duration such as `30s`, `10m`, `2h` or `1d`. Raise Halt if the text is not a duration."""
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise Halt(f"--since must be a whole number of seconds, minutes, hours or days such as 10m, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def logs(deployed: Deployed, selection: Selection, sandbox: Path | None, console: Console) -> int:
    """Print the output of a job's hosts. Return the exit status, which is 0 unless the job has failed.

    `sandbox` is the folder of the sandbox that has the stack. It keeps the logs of deleted pods.
    """
    printer = Printer(console, named=selection.all_hosts, as_json=selection.as_json)
    try:
        ref = deployed.find(selection.job)
        if selection.follow:
            try:
                which, window = selection.which, selection.window()
                ended = follow(deployed.api, ref.namespace, ref.name, which, printer, window, ref.kind)
            except LookupError:
                raise _missing(deployed, ref) from None
            return _status(ended, deployed, ref)
        return _read(deployed, ref, selection, find_sandbox(sandbox, deployed.stack) if sandbox else None, printer)
    except BrokenPipeError:
        # The reader closed the pipe, which is not an error of the cluster.
        raise
    except UNREACHABLE as error:
        raise Halt(
            f"expected the cluster to return the logs of a job, got: {error}\n"
            f"Try again, or find the cause: {deployed.reader.command('doctor')}"
        ) from None


@dataclass(frozen=True)
class Printer:
    """Writes log lines, with the names of their hosts if `named`."""

    console: Console
    named: bool
    as_json: bool

    def __call__(self, line: Line) -> None:
        if self.as_json:
            self._write(json.dumps(asdict(line)))
            return
        if not self.console.is_terminal:
            self._write(f"{line.host}  {line.text}" if self.named else line.text)
            return
        # The colour of a host is the same in every call.
        # Pods without a number have letters.
        slice_index, host_index = (int(part, 36) for part in line.host.rsplit("-", 2)[1:])
        colour = _COLOURS[(slice_index * 3 + host_index) % len(_COLOURS)]
        name = Text(f"{line.host}  ", colour) if self.named else Text()
        self.console.print(name + Text(line.text), soft_wrap=True, highlight=False)

    def _write(self, text: str) -> None:
        self.console.file.write(f"{text}\n")
        self.console.file.flush()


def earlier_logs(
    site: "Site", ref: JobRef, which: Which, leading: str, present: Collection[str], tail_lines: int | None
) -> dict[str, list[Line]]:
    """Return the logs that the sandbox keeps: for each selected host, the last attempt of its last pod that is not in
    `present`.

    `present` has the uids of pods. If `leading`, the name of the job's leader, is empty, the leader is the head, or
    host 0 of slice 0 in a job without one.
    """
    kept = re.compile(rf"{re.escape(ref.namespace)}_{re.escape(ref.name)}-(?P<host>.+-\d+-\d+)-[a-z0-9]+_(?P<uid>.+)")
    last: dict[str, Path] = {}
    for path in sorted((site.logs / "pods").glob("*/*.log"), key=lambda path: path.stat().st_mtime):
        at = kept.fullmatch(path.parent.name)
        if at and at["uid"] not in present and ".previous" not in path.name:
            last[at["host"]] = path
    led = leading or next((name for name in (f"{HEAD}-0-0", LEADER) if name in last), "")
    found: dict[str, list[Line]] = {}
    for name, path in sorted(last.items()):
        if which(name, led):
            lines = path.read_text(errors="replace").splitlines()
            newest_attempt = _attempts(Line(name, None, "", line) for line in lines)[-1]
            found[name] = _last(newest_attempt, tail_lines)
    return found


def _last(lines: list[Line], count: int | None) -> list[Line]:
    return lines if count is None else lines[max(0, len(lines) - count) :]


def _attempts(read: Iterable[Line]) -> list[list[Line]]:
    """Return the lines of each attempt in the log of a pod. It has several if the pod stays."""
    attempts: list[list[Line]] = [[]]
    begun = False
    for line in read:
        if ATTEMPT_BEGINS.fullmatch(line.text):
            if begun:
                attempts.append([])
            begun = True
        attempts[-1].append(line)
    return attempts


def _status(ended: Outcome | None, deployed: Deployed, ref: JobRef) -> int:
    if ended is None or ended.state == "Completed":
        return 0
    why = f"multislice explain {deployed.word_for(ref)} {deployed.options}"
    sys.stderr.write(inert(f"job {ref.name} has failed: {ended.reason}: {ended.message}\nTo see why, run: {why}\n"))
    return NEGATIVE


def _read(deployed: Deployed, ref: JobRef, selection: Selection, site: "Site | None", printer: Printer) -> int:
    found_job = deployed.api.find(f"{COLLECTIONS[ref.kind].format(ref.namespace)}/{ref.name}")
    if found_job is None and not (selection.previous and site):
        raise _missing(deployed, ref)
    jobset = as_jobset(found_job) if found_job else None
    pods = pods_of(deployed.api, ref.namespace, ref.name, ref.kind)
    current = newest(pods, 0.0)
    if selection.host and current and selection.host not in [pod.host for pod in current]:
        names = ", ".join(pod.host for pod in current)
        raise Halt(f"--host must name a host of job {ref.name} ({names}), got {selection.host!r}")
    present = {pod.uid for pod in current}
    leading = leader_of(jobset) if jobset else ""
    unread: list[str] = []

    def sources(of_start: list[Json]) -> list[Source]:
        uids = {pod.uid for pod in newest(of_start, 0.0) if selection.which(pod.host, leading)}
        return [Source.of(deployed.api, pod) for pod in of_start if pod["metadata"]["uid"] in uids]

    # The pods that the cluster still has: the newest one of each host, and those before.
    now, before = ([pod for pod in pods if (pod["metadata"]["uid"] in present) is new] for new in (True, False))
    found: dict[str, Iterable[Line]] = {
        source.pod.host: _live_lines(source, selection.window(), unread)
        for source in sources(before if selection.previous else now)
    }
    if selection.previous:
        found |= _before_the_newest(sources(now), selection, unread)
        if site and not selection.since:
            found = earlier_logs(site, ref, selection.which, leading, present, selection.tail_lines) | found
        elif site and not found:
            raise Halt(
                "--since needs the times of lines, and the sandbox deletes them with the pod; with --previous, pass a"
                " number of lines such as --tail 100"
            )
    printed = False
    for line in heapq.merge(*found.values(), key=lambda line: line.at):
        printer(line)
        printed = True
    if unread:
        lines = "\n".join(f"  {line}" for line in unread)
        raise Halt(f"expected the logs of all selected hosts, could not read all lines of:\n{lines}")
    if not printed and (selection.previous or not current):
        raise _nothing(deployed, ref, selection)
    return _status(outcome_of(jobset) if jobset else None, deployed, ref)


def _before_the_newest(sources: list[Source], selection: Selection, unread: list[str]) -> dict[str, list[Line]]:
    """Return the lines of the attempt before the newest one, by host, of pods that stay and were in both."""
    found: dict[str, list[Line]] = {}
    since = selection.window().since
    for source in (source for source in sources if source.stays):
        attempts = _attempts(_live_lines(source, WHOLE, unread))
        if len(attempts) > 1:
            lines = [line for line in attempts[-2] if since is None or line.at >= f"{since:%Y-%m-%dT%H:%M:%S}"]
            found[source.pod.host] = _last(lines, selection.tail_lines)
    return found


def _live_lines(source: Source, window: Window, unread: list[str]) -> Iterator[Line]:
    """Yield the lines of a pod, or nothing if it has not started or no longer exists.

    An error goes to `unread`, so that an unreachable node does not hide the logs of the others.
    """
    try:
        yield from source.read(window)
    except UNREACHABLE as error:
        if not isinstance(error, ApiError) or error.status not in (400, 404):
            unread.append(f"{source.pod.host} on node {source.pod.node}: {error}")


def _missing(deployed: Deployed, ref: JobRef) -> Halt:
    return Halt(
        f"job {ref.name} does not exist in namespace {ref.namespace};"
        f" `multislice list {deployed.options}` lists the jobs"
    )


def _nothing(deployed: Deployed, ref: JobRef, selection: Selection) -> Halt:
    if not selection.previous:
        advice = f"`multislice explain {deployed.word_for(ref)} {deployed.options}` says what the job waits for"
        return Halt(f"no host of job {ref.name} has started; {advice}")
    names = f'resource.labels.namespace_name="{ref.namespace}" resource.labels.pod_name:"{ref.name}-"'
    return Halt(
        f"no logs of an earlier start of job {ref.name}: it has not restarted, or its pods and their logs were"
        f" deleted.\nGoogle Cloud keeps the logs: gcloud logging read '{names}'"
    )

"""`multislice logs`: the output of a job's hosts."""

import heapq
import json
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.text import Text

from cli.deployed import Deployed, JobPlace
from cli.halt import Halt
from cli.sandbox_folder import existing
from infra.job_logs import Line, Source, Which, Window, follow, host, hosts, leader
from infra.job_state import LEADER, Object, Outcome, leader_of, newest, outcome_of, pods_of
from infra.kubernetes import UNREACHABLE, ApiError
from infra.names import HEAD, JOBSETS
from sandbox.site import Site
from workloads.terminal import inert

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

FAILED = 2
"""Exit status when the job has failed."""

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
"""Colours of hosts; with few hosts, each has its own."""


@dataclass(frozen=True)
class Asked:
    """The lines that the command line asks for."""

    job: str | None
    all_hosts: bool
    host: str | None
    follow: bool
    previous: bool
    """Whether those of the start before the newest one are wanted."""
    tail_lines: int | None
    since: timedelta | None
    as_json: bool

    @property
    def which(self) -> Which:
        if self.host:
            return host(self.host)
        return hosts if self.all_hosts else leader

    def window(self) -> Window:
        """Return the part of each log to begin with."""
        return Window(self.tail_lines, datetime.now(UTC) - self.since if self.since else None)


def span(text: str) -> timedelta:
    """Return the time that a text such as `30s`, `10m`, `2h` or `1d` stands for.

    Raises:
        Halt: it stands for none.
    """
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise Halt(f"--since must be a whole number of seconds, minutes, hours or days such as 10m, got {text!r}")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def logs(deployed: Deployed, asked: Asked, sandbox: Path | None, console: Console) -> int:
    """Print the output of a job's hosts; return the exit status, 0 unless the job has failed.

    `sandbox` is the folder of the sandbox that has the stack; it keeps the logs of pods that are gone.

    Raises:
        Halt: there is no such job, host or log, or the cluster does not answer.
    """
    printer = Printer(console, named=asked.all_hosts, as_json=asked.as_json)
    try:
        place = deployed.find(asked.job)
        if asked.follow:
            try:
                ended = follow(deployed.api, place.namespace, place.name, asked.which, printer, asked.window())
            except LookupError:
                raise _missing(deployed, place) from None
            return _status(ended, deployed, place)
        return _read(deployed, place, asked, existing(sandbox) if sandbox else None, printer)
    except BrokenPipeError:
        # The reader of the lines has gone, which is no error of the cluster.
        raise
    except UNREACHABLE as error:
        raise Halt(
            f"expected the cluster to return the logs of a job, got: {error}\n"
            f"Try again, or run: multislice doctor {deployed.options}"
        ) from None


@dataclass(frozen=True)
class Printer:
    """Writes lines, with the names of their hosts where there are several."""

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
        name = Text(f"{line.host}  ", _colour(line.host)) if self.named else Text()
        self.console.print(name + Text(line.text), soft_wrap=True, highlight=False)

    def _write(self, text: str) -> None:
        self.console.file.write(f"{text}\n")
        self.console.file.flush()


def earlier_logs(
    site: Site, place: JobPlace, which: Which, leading: str, present: Collection[str], tail_lines: int | None
) -> list[Iterator[Line]]:
    """Return for each wanted host the log of its last pod that is not `present`, as the sandbox keeps it.

    `present` are uids. `leading` is empty where the leader of the job is unknown: it is then a head, or host 0 of
    slice 0.
    """
    name = re.compile(
        rf"{re.escape(place.namespace)}_{re.escape(place.name)}-(?P<host>.+-\d+-\d+)-[a-z0-9]+_(?P<uid>.+)"
    )
    last: dict[str, Path] = {}
    for path in sorted((site.logs / "pods").glob("*/*.log"), key=lambda path: path.stat().st_mtime):
        found = name.fullmatch(path.parent.name)
        if found and found["uid"] not in present and ".previous" not in path.name:
            last[found["host"]] = path
    led = leading or next((name for name in (f"{HEAD}-0-0", LEADER) if name in last), "")
    return [_kept_lines(host, path, tail_lines) for host, path in sorted(last.items()) if which(host, led)]


def _kept_lines(host: str, path: Path, tail_lines: int | None) -> Iterator[Line]:
    lines = path.read_text(errors="replace").splitlines()
    first = 0 if tail_lines is None else max(0, len(lines) - tail_lines)
    return (Line(host, 0, "", line) for line in lines[first:])


def _colour(name: str) -> str:
    """Always the same for a host."""
    slice_index, host_index = (int(part) for part in name.rsplit("-", 2)[1:])
    return _COLOURS[(slice_index * 3 + host_index) % len(_COLOURS)]


def _status(ended: Outcome | None, deployed: Deployed, place: JobPlace) -> int:
    if ended is None or ended.state == "Completed":
        return 0
    why = f"multislice explain {place.name} {deployed.options}"
    sys.stderr.write(inert(f"job {place.name} has failed: {ended.reason}: {ended.message}\nSee why: {why}\n"))
    return FAILED


def _read(deployed: Deployed, place: JobPlace, asked: Asked, site: Site | None, printer: Printer) -> int:
    jobset = deployed.api.find(f"{JOBSETS.format(place.namespace)}/{place.name}")
    if jobset is None and not (asked.previous and site):
        raise _missing(deployed, place)
    pods = pods_of(deployed.api, place.namespace, place.name)
    current = newest(pods, 0.0)
    if asked.host and current and asked.host not in [pod.host for pod in current]:
        names = ", ".join(pod.host for pod in current)
        raise Halt(f"--host must name a host of job {place.name} ({names}), got {asked.host!r}")
    present = {pod.uid for pod in current}
    leading = leader_of(jobset) if jobset else ""
    unread: list[str] = []
    found = _live_logs(deployed, asked, leading, pods, present, unread)
    printed = _print(found or _kept_logs(site, place, asked, leading, present), printer)
    if unread:
        lines = "\n".join(f"  {line}" for line in unread)
        raise Halt(f"expected the logs of all wanted hosts, got none, or only a part, of:\n{lines}")
    if not printed and (asked.previous or not current):
        raise _nothing(deployed, place, asked)
    return _status(outcome_of(jobset) if jobset else None, deployed, place)


def _live_logs(
    deployed: Deployed,
    asked: Asked,
    leading: str,
    pods: Sequence[Object],
    present: Collection[str],
    unread: list[str],
) -> list[Iterator[Line]]:
    """The logs of the pods that the cluster still has: the newest of each host, or those before.

    `unread` gets the error when a log cannot be read.
    """
    of_start = [pod for pod in pods if (pod["metadata"]["uid"] in present) != asked.previous]
    uids = {pod.uid for pod in newest(of_start, 0.0) if asked.which(pod.host, leading)}
    sources = [Source.of(deployed.api, pod) for pod in of_start if pod["metadata"]["uid"] in uids]
    return [_live_lines(source, asked.window(), unread) for source in sources]


def _live_lines(source: Source, window: Window, unread: list[str]) -> Iterator[Line]:
    """Lines of a pod; none if it has not begun, or is gone by now. An unreachable node does not stop the others."""
    try:
        yield from source.read(window)
    except UNREACHABLE as error:
        if not isinstance(error, ApiError) or error.status not in (400, 404):
            unread.append(f"{source.pod.host} on node {source.pod.node}: {error}")


def _kept_logs(
    site: Site | None, place: JobPlace, asked: Asked, leading: str, present: Collection[str]
) -> list[Iterator[Line]]:
    if site is None or not asked.previous:
        return []
    if asked.since:
        raise Halt(
            "--since needs the times of lines, which a sandbox keeps no longer than their pod; with --previous give a"
            " number of lines, such as --tail 100"
        )
    return earlier_logs(site, place, asked.which, leading, present, asked.tail_lines)


def _print(found: Sequence[Iterator[Line]], printer: Printer) -> bool:
    """Print lines of several hosts in the order in which they were written; return whether there were any."""
    count = 0
    for line in heapq.merge(*found, key=lambda line: line.at):
        printer(line)
        count += 1
    return count > 0


def _missing(deployed: Deployed, place: JobPlace) -> Halt:
    return Halt(
        f"expected job {place.name} in namespace {place.namespace}, found none;"
        f" `multislice list {deployed.options}` lists the jobs"
    )


def _nothing(deployed: Deployed, place: JobPlace, asked: Asked) -> Halt:
    if not asked.previous:
        advice = f"`multislice explain {place.name} {deployed.options}` says what it waits for"
        return Halt(f"expected hosts of job {place.name} that have begun, found none; {advice}")
    names = f'resource.labels.namespace_name="{place.namespace}" resource.labels.pod_name:"{place.name}-"'
    return Halt(
        f"expected logs of the start before in job {place.name}, found none: it has not restarted, or its pods are"
        f" gone, and their logs with them.\nGoogle Cloud keeps them: gcloud logging read '{names}'"
    )

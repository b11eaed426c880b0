"""`multislice logs`.

Owns which hosts are meant, where the lines go and how the command ends.
"""

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
from cli.logs.following import Which, follow, host, hosts, leader
from cli.logs.kept import earlier_logs
from cli.logs.pod_log import Source
from cli.logs.reading import Line, Window
from cli.observed.objects import Object
from cli.observed.outcome import Outcome, outcome_of
from cli.observed.place import place_of
from cli.observed.pod import leader_of, newest, pods_of
from cli.sandbox_folder import existing
from infra.kubernetes import UNREACHABLE, ApiError
from infra.names import JOBSETS
from sandbox.site import Site
from workloads.terminal import inert

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}

FAILED = 2
"""Exit status when the job has failed."""

_COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "bright_cyan", "bright_magenta", "bright_green")
"""Of hosts, which are told apart by them where there are few."""


@dataclass(frozen=True)
class Asked:
    """What somebody wants to read."""

    job: str | None
    all_hosts: bool
    host: str | None
    follow: bool
    previous: bool
    """The start before the newest one."""
    tail_lines: int | None
    since: timedelta | None
    as_json: bool

    @property
    def which(self) -> Which:
        if self.host:
            return host(self.host)
        return hosts if self.all_hosts else leader

    def window(self, now: datetime) -> Window:
        """The part of each log to begin with."""
        return Window(self.tail_lines, now - self.since if self.since else None)


def span(text: str) -> timedelta:
    """A time such as `30s`, `10m`, `2h` or `1d`.

    Raises:
        Halt: it is none.
    """
    found = re.fullmatch(r"([0-9]{1,6})([smhd])", text)
    if found is None:
        raise Halt(f"--since must be a whole number of seconds, minutes, hours or days, got {text!r}; write it so: 10m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def logs(deployed: Deployed, asked: Asked, sandbox: Path | None, console: Console) -> int:
    """Print what the hosts of a job print; the exit status, 0 unless the job has failed.

    `sandbox` is the folder of the one that the stack stands in, which keeps the logs of pods that are gone.

    Raises:
        Halt: there is no such job, host or log, or the cluster does not answer.
    """
    told = Printer(console, named=asked.all_hosts, as_json=asked.as_json)
    try:
        place = place_of(deployed, asked.job)
        if asked.follow:
            return _followed(deployed, place, asked, told)
        return _read(deployed, place, asked, existing(sandbox) if sandbox else None, told)
    except BrokenPipeError:
        # Whoever reads the lines has gone, which is no fault of the cluster.
        raise
    except UNREACHABLE as fault:
        doctor = f"multislice doctor {deployed.options}"
        raise Halt(
            f"expected the cluster to give the logs of a job, got: {fault}\nTry again, or run: {doctor}"
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


def _colour(name: str) -> str:
    """The same for a host whenever it is asked for."""
    slice_index, host_index = (int(part) for part in name.rsplit("-", 2)[1:])
    return _COLOURS[(slice_index * 3 + host_index) % len(_COLOURS)]


def _followed(deployed: Deployed, place: JobPlace, asked: Asked, told: Printer) -> int:
    window = asked.window(datetime.now(UTC))
    try:
        ended = follow(deployed.api, place.namespace, place.name, asked.which, told, window)
    except LookupError:
        raise _missing(deployed, place) from None
    return _status(ended, deployed, place)


def _status(ended: Outcome | None, deployed: Deployed, place: JobPlace) -> int:
    if ended is None or ended.state == "Completed":
        return 0
    why = f"multislice explain {place.name} {deployed.options}"
    sys.stderr.write(inert(f"job {place.name} has failed: {ended.reason}: {ended.message}\nSay why: {why}\n"))
    return FAILED


def _read(deployed: Deployed, place: JobPlace, asked: Asked, site: Site | None, told: Printer) -> int:
    jobset = deployed.api.find(f"{JOBSETS.format(place.namespace)}/{place.name}")
    if jobset is None and not (asked.previous and site):
        raise _missing(deployed, place)
    pods = pods_of(deployed.api, place.namespace, place.name)
    current = newest(pods, 0.0)
    if asked.host and current and asked.host not in [pod.host for pod in current]:
        names = ", ".join(pod.host for pod in current)
        raise Halt(f"--host must name a host of job {place.name} ({names}), got {asked.host!r}")
    present = {pod.uid for pod in current}
    # Of a job whose JobSet is gone, what a sandbox keeps tells who led it.
    leading = leader_of(jobset) if jobset else ""
    unread: list[str] = []
    there = _wanted(deployed, asked, leading, pods, present, unread)
    printed = _tell(there or _kept(site, place, asked, leading, present), told)
    if unread:
        lines = "\n".join(f"  {line}" for line in unread)
        raise Halt(f"expected the logs of all hosts that are asked for, got none, or a part, of:\n{lines}")
    if not printed and (asked.previous or not current):
        raise _nothing(deployed, place, asked)
    return _status(outcome_of(jobset) if jobset else None, deployed, place)


def _wanted(
    deployed: Deployed,
    asked: Asked,
    leading: str,
    pods: Sequence[Object],
    present: Collection[str],
    unread: list[str],
) -> list[Iterator[Line]]:
    """The logs of the pods that the cluster still has: the newest of each host, or those before.

    `unread` gets what kept one of them from being read, once that was tried.
    """
    window = asked.window(datetime.now(UTC))
    of_start = [pod for pod in pods if (pod["metadata"]["uid"] in present) != asked.previous]
    uids = {pod.uid for pod in newest(of_start, 0.0) if asked.which(pod.host, leading)}
    return [_lines(Source.of(deployed.api, pod), window, unread) for pod in of_start if pod["metadata"]["uid"] in uids]


def _kept(
    site: Site | None, place: JobPlace, asked: Asked, leading: str, present: Collection[str]
) -> list[Iterator[Line]]:
    """What a sandbox keeps of pods that are gone."""
    if site is None or not asked.previous:
        return []
    if asked.since:
        raise Halt(
            "--since goes by the times of lines, which a sandbox keeps no longer than their pod; with --previous name"
            " a number of lines, such as --tail 100"
        )
    return earlier_logs(site, place, asked.which, leading, present, asked.tail_lines)


def _tell(logs: Sequence[Iterator[Line]], told: Printer) -> bool:
    """Print lines of several hosts in the order in which they were written; whether there were any."""
    count = 0
    for line in heapq.merge(*logs, key=lambda line: line.at):
        told(line)
        count += 1
    return count > 0


def _lines(source: Source, window: Window, unread: list[str]) -> Iterator[Line]:
    """A pod that has not begun, or is gone by now, has no lines; a node that is away keeps nobody else's back."""
    try:
        yield from source.read(window)
    except UNREACHABLE as fault:
        if not isinstance(fault, ApiError) or fault.status not in (400, 404):
            unread.append(f"{source.pod.host} on node {source.pod.node}: {fault}")


def _missing(deployed: Deployed, place: JobPlace) -> Halt:
    return Halt(
        f"expected job {place.name} in namespace {place.namespace}, found none;"
        f" `multislice list {deployed.options}` names those there are"
    )


def _nothing(deployed: Deployed, place: JobPlace, asked: Asked) -> Halt:
    if not asked.previous:
        advice = f"ask `multislice explain {place.name} {deployed.options}` what it waits for"
        return Halt(f"expected hosts of job {place.name} that have begun, found none; {advice}")
    names = f'resource.labels.namespace_name="{place.namespace}" resource.labels.pod_name:"{place.name}-"'
    return Halt(
        f"expected logs of the start before in job {place.name}, found none: it has not restarted, or its pods are"
        f" gone, and their logs with them.\nIn Google Cloud they are kept: gcloud logging read '{names}'"
    )

"""Logs that a sandbox keeps of pods that are gone; a cluster forgets them with the pod."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from cli.deployed import JobPlace
from cli.logs.following import Which
from cli.logs.reading import Line
from cli.observed.pod import LEADER
from infra.names import HEAD
from sandbox.site import Site


def earlier_logs(
    site: Site, place: JobPlace, which: Which, leader: str, present: Collection[str], tail_lines: int | None
) -> list[Iterator[Line]]:
    """Of each wanted host the log of its last pod that is not `present`, which are uids.

    `leader` is empty where nobody can say any more who led the job.
    """
    name = re.compile(
        rf"{re.escape(place.namespace)}_{re.escape(place.name)}-(?P<host>.+-\d+-\d+)-[a-z0-9]+_(?P<uid>.+)"
    )
    newest: dict[str, Path] = {}
    for path in sorted((site.logs / "pods").glob("*/*.log"), key=lambda path: path.stat().st_mtime):
        found = name.fullmatch(path.parent.name)
        if found and found["uid"] not in present and ".previous" not in path.name:
            newest[found["host"]] = path
    led = leader or _leader_among(newest)
    return [_lines(host, path, tail_lines) for host, path in sorted(newest.items()) if which(host, led)]


def _leader_among(hosts: Collection[str]) -> str:
    """A head, or else host 0 of slice 0; empty: neither has left a log."""
    return next((name for name in (f"{HEAD}-0-0", LEADER) if name in hosts), "")


def _lines(host: str, path: Path, tail_lines: int | None) -> Iterator[Line]:
    lines = path.read_text(errors="replace").splitlines()
    first = 0 if tail_lines is None else max(0, len(lines) - tail_lines)
    return (Line(host, 0, "", line) for line in lines[first:])

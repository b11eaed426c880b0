"""Logs that a sandbox keeps of pods that are gone; a cluster forgets them with the pod."""

import re
from collections.abc import Collection, Iterator
from pathlib import Path

from cli.deployed import JobPlace
from cli.logs.following import Which
from cli.logs.reading import Line
from sandbox.site import Site


def earlier_logs(
    site: Site, place: JobPlace, which: Which, present: Collection[str], tail_lines: int | None
) -> list[Iterator[Line]]:
    """Of each wanted host the log of its last pod that is not `present`, which are uids."""
    name = re.compile(
        rf"{re.escape(place.namespace)}_{re.escape(place.name)}-(?P<host>.+-\d+-\d+)-[a-z0-9]+_(?P<uid>.+)"
    )
    newest: dict[str, Path] = {}
    for path in sorted((site.logs / "pods").glob("*/*.log"), key=lambda path: path.stat().st_mtime):
        found = name.fullmatch(path.parent.name)
        if found and which(found["host"]) and found["uid"] not in present and ".previous" not in path.name:
            newest[found["host"]] = path
    return [_lines(host, path, tail_lines) for host, path in sorted(newest.items())]


def _lines(host: str, path: Path, tail_lines: int | None) -> Iterator[Line]:
    lines = path.read_text(errors="replace").splitlines()
    first = 0 if tail_lines is None else max(0, len(lines) - tail_lines)
    return (Line(host, 0, "", line) for line in lines[first:])

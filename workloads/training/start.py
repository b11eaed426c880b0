"""The facts of one attempt of a job that its processes get, and how earlier attempts of its submission ended."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from etils import epath

from workloads.report.records import FailureRecord
from workloads.spec import ExitCode


@dataclass(frozen=True)
class Start:
    """One attempt of the job: one run of its processes."""

    run_id: str
    restart_attempt: int
    began: float
    """Unix time at which this host's process began."""
    image: str | None
    """Container image with its digest. `None` if unknown."""
    asked_slices: int
    """Number of slices that the job asks for."""
    usd_per_hour: float | None
    """Price of all of these slices. `None` if unknown."""


@dataclass(frozen=True)
class PastEnd:
    """Attempts that ended with the same exit code."""

    count: int
    last: float
    """Unix time of the last end."""


def past_ends(storage: epath.Path, start: Start) -> dict[str, PastEnd]:
    """Return the ends before `start` by the name of their exit code, one for each restart of the JobSet."""
    ends: dict[str, PastEnd] = {}
    for record in _first_words(storage / "failures" / start.run_id, start.restart_attempt):
        code = _name(record.code)
        before = ends.get(code, PastEnd(0, 0.0))
        ends[code] = PastEnd(before.count + 1, max(before.last, record.time))
    return ends


def _first_words(folder: epath.Path, restarts: int) -> Iterator[FailureRecord]:
    """Yield for each earlier restart the record of a host that failed itself. After a hang, every host has a record."""
    if not folder.exists():
        return
    paths = sorted((path for path in folder.iterdir() if path.suffix == ".json"), key=_restart_and_second)
    for restart, of_one_start in groupby(paths, key=lambda path: _restart_and_second(path)[0]):
        if restart >= restarts:
            # This is the current attempt, where a host may keep a record of a failure that may come.
            return
        records = filter(None, map(_read, of_one_start))
        first = next((record for record in records if not record.elsewhere), None)
        if first:
            yield first


def _restart_and_second(path: epath.Path) -> tuple[int, int]:
    _, restart, second = path.stem.rsplit("-", 2)
    return int(restart), int(second)


def _read(path: epath.Path) -> FailureRecord | None:
    try:
        return FailureRecord.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        # It is being written or damaged. The other records of this attempt have the same failure.
        return None


def _name(code: int) -> str:
    try:
        return ExitCode(code).name
    except ValueError:
        return str(code)

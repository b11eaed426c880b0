"""The facts of one attempt of a job that its processes get, and how earlier attempts of its submission ended."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Self

from etils import epath

from multislice_run.exit_codes import exit_name
from multislice_run.pod import (
    IMAGE_VARIABLE,
    PRICE_VARIABLE,
    RUN_ID_VARIABLE,
    START_VARIABLE,
)
from multislice_run.records.lines import FailureRecord, parse
from multislice_run.records.reader import read_record


@dataclass(frozen=True)
class AttemptFacts:
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

    @classmethod
    def of(cls, environment: Mapping[str, str], began: float, asked_slices: int) -> Self:
        """Return the facts that the pod's variables describe.

        Raises:
            KeyError: a variable is missing.
            ValueError: the number of restarts is not a number.
        """
        run_id, restarts = environment[RUN_ID_VARIABLE], int(environment[START_VARIABLE])
        image, price = environment.get(IMAGE_VARIABLE), usd_per_hour(environment)
        return cls(run_id, restarts, began, image, asked_slices, price)

    def facts(self, host: str, slices: int) -> dict[str, Any]:
        """Return the facts of the event `start` of a host in an attempt that runs on `slices` slices."""
        return {name: value for name, value in vars(self).items() if name != "image"} | {"host": host, "slices": slices}


def usd_per_hour(environment: Mapping[str, str]) -> float | None:
    """Return the job's price. `None` if it is missing or not valid, because that must not end a job."""
    try:
        price = float(environment.get(PRICE_VARIABLE, ""))
    except ValueError:
        return None
    return price if math.isfinite(price) and price >= 0 else None


@dataclass(frozen=True)
class PastEnd:
    """Attempts that ended with the same exit code."""

    count: int
    last: float
    """Unix time of the last end."""


def past_ends(storage: epath.Path, start: AttemptFacts) -> dict[str, PastEnd]:
    """Return the ends before `start` by the name of their exit code, one for each restart of the JobSet."""
    ends: dict[str, PastEnd] = {}
    for record in _first_words(storage / "failures" / start.run_id, start.restart_attempt):
        code = exit_name(record.code)
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
    # If it is being written or damaged, the other records of this attempt have the same failure.
    with suppress(OSError):
        return read_record(path, partial(parse, FailureRecord), [])
    return None

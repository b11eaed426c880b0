"""Failure records, `failures/<run id>/<host>-<restart>-<second>.json`: the last word of a host that failed.

Owns where they lie, what their names say, and which were written in the same start. Of a start that left ledgers too
`history` knows more.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from etils import epath

from workloads.report.records import FailureRecord, believed

_NAME = re.compile(r".+-(?P<attempt>[0-9]{1,9})-(?P<began>[0-9]{1,10})\.json")


@dataclass(frozen=True)
class Failure:
    """What a host failed of."""

    attempt: int
    host: str
    cause: str
    code: int
    time: float


@dataclass(frozen=True)
class Told:
    """A failure, and which process it ended."""

    run_id: str
    """The submission."""
    began: int
    """The second in which the process did."""
    failure: Failure


def read_failures(storage: epath.Path, notes: list[str], run_ids: Collection[str] | None = None) -> list[Told]:
    """Failures of these submissions, None: of all, the first one first; `notes` gets what cannot be read.

    What a host heard of another one's failure is none.
    """
    return sorted(_found(storage / "failures", notes, run_ids), key=lambda told: told.failure.time)


def by_start(early: Iterable[Told], others: Sequence[float]) -> list[list[Told]]:
    """Failures of starts that left nothing else, start by start; the `others` began at these moments.

    A host fails once in a start, and no other start begins while one lasts.
    """
    found: list[list[Told]] = []
    for told in sorted(early, key=lambda told: (told.run_id, told.failure.attempt, told.began)):
        if found and _same_start(found[-1], told, others):
            found[-1].append(told)
        else:
            found.append([told])
    return sorted(found, key=lambda hosts: hosts[0].began)


def _same_start(hosts: Sequence[Told], told: Told, others: Sequence[float]) -> bool:
    first = hosts[0]
    attempt = (first.run_id, first.failure.attempt) == (told.run_id, told.failure.attempt)
    again = told.failure.host in [each.failure.host for each in hosts]
    return attempt and not again and not any(first.began < other <= told.began for other in others)


def _found(folder: epath.Path, notes: list[str], run_ids: Collection[str] | None) -> Iterator[Told]:
    for path in _paths(folder, run_ids):
        name = _NAME.fullmatch(path.name)
        if name is None:
            notes.append(f"failures/{path.parent.name}/{path.name}: expected the name <host>-<restart>-<second>.json")
        elif (record := believed(path, FailureRecord, notes)) and not record.elsewhere:
            failure = Failure(int(name["attempt"]), record.host, record.cause, record.code, record.time)
            yield Told(path.parent.name, int(name["began"]), failure)


def _paths(folder: epath.Path, run_ids: Collection[str] | None) -> list[epath.Path]:
    if run_ids is None:
        return sorted(folder.glob("*/*.json")) if folder.exists() else []
    return [
        path for name in sorted(run_ids) if (folder / name).exists() for path in sorted((folder / name).glob("*.json"))
    ]

"""What others have changed in a stack's objects, as one object and as tables.

Owns what is in it and in which words a person reads it; who asks the engine is the business of `cli.drift`.
"""

import json
from collections.abc import Iterable

from pydantic import JsonValue

from infra.review.previewed import Change
from infra.review.table import UNKNOWN, Table
from workloads.spec import Spec

_LONGEST_VALUE = 40
"""Characters of a value that a table shows."""


class Difference(Spec):
    """One value that is not as declared."""

    path: str
    """In Pulumi's syntax, such as `spec.rules[0].hosts["a.b"]`."""
    declared: JsonValue
    """None: nothing. Secrets are masked by the engine."""
    found: JsonValue


class Drifted(Spec):
    """An object that is not as declared."""

    type: str
    name: str
    """Within the program."""
    gone: bool
    differences: tuple[Difference, ...]
    """None of an object that is gone."""
    repair: str | None
    """What `up` would do with it, in Pulumi's word; None: unknown, since the plan is refused."""


class Drift(Spec):
    """What a refresh of a stack would find, and what `up` would do after it."""

    stack: str
    objects: tuple[Drifted, ...]
    pending: tuple[Change, ...]
    """What `up` would do besides: changes of the program or its settings that nobody has brought up yet."""
    errors: tuple[str, ...]
    """Why the engine cannot say what `up` would do."""
    seconds: float
    """What it took."""


def drift_tables(drift: Drift) -> list[Table]:
    """What a person reads of it."""
    count = len(drift.objects)
    counted = "1 object is" if count == 1 else f"{count} objects are"
    told = "everything that the program declares is as it was brought up" if not count else f"{counted} not as declared"
    return [
        Table(
            title="Drift",
            verdict=told,
            state="bad" if count or drift.errors else "good",
            columns=("object", "path", "declared", "found", "up would"),
            rows=[row for drifted in drift.objects for row in _rows(drifted)],
            notes=list(_notes(drift)),
        )
    ]


def _rows(drifted: Drifted) -> Iterable[tuple[str, ...]]:
    named = f"{drifted.type.rpartition(':')[2]} {drifted.name}"
    repair = drifted.repair or UNKNOWN
    if drifted.gone:
        yield named, "", "the object", "nothing", repair
    for difference in drifted.differences:
        yield named, difference.path, _value(difference.declared), _value(difference.found), repair


def _value(value: JsonValue) -> str:
    if value is None:
        return "nothing"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _notes(drift: Drift) -> Iterable[str]:
    if drift.objects:
        yield "pulumi up --refresh makes everything as declared again; or declare what was found."
    if drift.pending:
        named = ", ".join(f"{change.operation} {change.name}" for change in drift.pending)
        yield f"Not drift, but not brought up yet: {named}."
    yield from (f"The engine cannot say what up would do: {error}" for error in drift.errors)

"""What the program declares for a stack file, as the rules see it."""

from typing import Any, cast

from pulumi.output import Unknown as NotComputed

from policy.rule import Declared, Unknown
from tests.infra.recording import Recording, Values


def plan_of(recording: Recording) -> tuple[Declared, ...]:
    """All that one run of the program registered."""
    return tuple(
        Declared(
            type=found.type,
            name=found.name,
            urn=found.urn,
            properties=_marked(found.inputs),
            delete_before_replace=found.request.deleteBeforeReplace,
        )
        for found in recording.registrations
    )


def _marked(value: Any) -> Any:
    if isinstance(value, NotComputed):
        return Unknown(("unknown",))
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in cast(Values, value).items()}
    if isinstance(value, list):
        return [_marked(item) for item in cast(list[Any], value)]
    return value

"""What objects of the Kubernetes API have in common: conditions and moments."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

type Object = Mapping[str, Any]
"""An object of the Kubernetes API, as JSON."""


@dataclass(frozen=True)
class Condition:
    """What a controller says of an object."""

    kind: str
    holds: bool
    reason: str
    message: str
    since: float
    """Of its last change between true and false, in seconds since the epoch."""


def conditions(found: Object) -> tuple[Condition, ...]:
    """All that controllers say of an object."""
    return tuple(
        Condition(
            told["type"],
            told.get("status") == "True",
            told.get("reason", ""),
            told.get("message", ""),
            moment(told, "lastTransitionTime", 0.0),
        )
        for told in found.get("status", {}).get("conditions", [])
    )


def condition(found: Object, kind: str) -> Mapping[str, str]:
    """The condition of that kind; empty if nobody has said it."""
    told: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return {each["type"]: each for each in told}.get(kind, dict[str, str]())


def is_true(found: Object, kind: str) -> bool:
    """Whether the condition of that kind is said and holds."""
    return condition(found, kind).get("status") == "True"


def moment(holder: Mapping[str, Any], key: str, otherwise: float) -> float:
    """A time of an object in seconds since the epoch; `otherwise` if it has none."""
    return datetime.fromisoformat(holder[key]).timestamp() if holder.get(key) else otherwise

"""What a stack's policy file lets pass, why, and until when.

Owns the form of an exception and when it counts. Whether there should be one is for those to say who
own `policy/stacks`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from typing import Any

from policy.rule import About, Group, Level, Severity

NOTICE = timedelta(days=60)
"""How long before its last day an exception is reported as ending."""

LONGEST = timedelta(days=366)
"""How far ahead the last day of an exception may lie: what is excused is looked at again once a year."""

ENDING = About(
    id="exceptions-ending",
    group=Group.RELIABILITY,
    severity=Severity.LOW,
    level=Level.ADVISORY,
    title="No exception that the stack needs ends soon",
    why="From the day after its last one the rule applies again, and a mandatory rule stops previews and `up`.",
    fix="Change what needs the exception, or review it and set a later expires_on in the stack's policy file.",
    link="https://www.pulumi.com/docs/iac/crossguard/configuration/",
)
"""The warning ahead of time. It is a policy of its own because Pulumi knows one enforcement level per policy."""

KEY = "exceptions"
"""In the settings of a rule in a policy file."""

SCHEMA: Mapping[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "resource": {"type": "string", "minLength": 1},
            "reason": {"type": "string", "minLength": 1},
            "expires_on": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
        },
        "required": ["resource", "reason", "expires_on"],
        "additionalProperties": False,
    },
}
"""JSON schema that Pulumi holds the list to before any rule runs."""


NONE: Mapping[str, Any] = {"type": "array", "maxItems": 0}
"""The same for a rule that nobody is excused from."""


@dataclass(frozen=True)
class GrantedException:
    """Resources on which a rule may be broken."""

    resource: str
    """Pattern of names within the program, such as `slices-*`; `*` holds for the stack as a whole, too."""
    reason: str
    expires_on: date
    """The last day on which it counts."""

    def covers(self, name: str) -> bool:
        """Whether it is about the resource of this name; the stack as a whole has an empty one."""
        return fnmatchcase(name, self.resource)

    def void(self, today: date) -> str | None:
        """Why it does not count on this day, or None if it does."""
        told = f"The exception until {self.expires_on} ({self.reason})"
        if today > self.expires_on:
            return f"{told} has expired."
        if self.expires_on - today > LONGEST:
            return f"{told} does not count yet: its last day may be {today + LONGEST} at the latest."
        return None

    def ends_soon(self, today: date) -> bool:
        """Whether its last day is within the next `NOTICE`."""
        return self.expires_on - today <= NOTICE


def granted(settings: Mapping[str, Any]) -> tuple[GrantedException, ...]:
    """The exceptions in a rule's settings, which Pulumi has held to `SCHEMA`.

    Raises:
        ValueError: a date that the calendar does not have.
    """
    return tuple(_granted(entry) for entry in settings.get(KEY, ()))


def void(exceptions: Iterable[GrantedException], name: str, today: date) -> tuple[str, ...] | None:
    """Why the exceptions that cover a resource do not count; None if one of them does."""
    reasons = [exception.void(today) for exception in exceptions if exception.covers(name)]
    return None if None in reasons else tuple(reason for reason in reasons if reason)


def longest(exceptions: Iterable[GrantedException], name: str, today: date) -> GrantedException | None:
    """The exception that covers a resource longer than the others do, if any that counts covers it."""
    covering = [exception for exception in exceptions if exception.covers(name) and not exception.void(today)]
    return max(covering, key=lambda exception: exception.expires_on, default=None)


def _granted(entry: Mapping[str, str]) -> GrantedException:
    try:
        expires_on = date.fromisoformat(entry["expires_on"])
    except ValueError as fault:
        raise ValueError(
            f"exception for {entry['resource']!r}: expected expires_on to be a day such as 2027-01-31,"
            f" got {entry['expires_on']!r}; correct it in the stack's policy file"
        ) from fault
    return GrantedException(entry["resource"], entry["reason"], expires_on)

"""Exceptions from rules, which are part of a stack's policy file: for which resources, why, and until when."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any, cast

from policy.rule import About

NOTICE = timedelta(days=60)
"""Number of days before the last day of an exception from which it is reported as ending."""

MAX_LIFETIME = timedelta(days=366)
"""Maximum time to the last day of an exception, so that every exception is reviewed once a year."""

ENDING = About(
    id="exceptions-ending",
    severity="low",
    level="advisory",
    title="No exception that the stack needs ends soon",
    why="On the day after its last day the rule applies again, and a mandatory rule stops previews and `up`.",
    fix="Change what needs the exception, or review it and set a later expires_on in the stack's policy file.",
    link="https://www.pulumi.com/docs/iac/crossguard/configuration/",
)
"""The early warning. It is a separate policy because Pulumi has one enforcement level per policy."""

KEY = "exceptions"

_EVERY_RULE = "all"
"""Pulumi's name for all rules in a policy file."""

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
"""JSON schema of the list. Pulumi checks it before any rule runs."""

NONE: Mapping[str, Any] = {"type": "array", "maxItems": 0}
"""JSON schema for a rule that allows no exceptions."""


@dataclass(frozen=True)
class GrantedException:
    """Resources that may break a rule."""

    resource: str
    """Pattern of names in the program, such as `slices-*`. `*` includes the stack as a whole."""
    reason: str
    expires_on: date
    """The last day on which it is valid."""

    def covers(self, name: str) -> bool:
        """Return whether it applies to the resource of this name. The stack as a whole has an empty name."""
        return fnmatchcase(name, self.resource)

    def void(self, today: date) -> str | None:
        """Return why it is not valid on this day, or None if it is valid."""
        exception = f"The exception until {self.expires_on} ({self.reason})"
        if today > self.expires_on:
            return f"{exception} has expired."
        if self.expires_on - today > MAX_LIFETIME:
            return f"{exception} is not valid yet: the latest last day is {today + MAX_LIFETIME}."
        return None


def read_exceptions(settings: Mapping[str, Any]) -> tuple[GrantedException, ...]:
    """Return the exceptions in a rule's settings, which Pulumi has checked with `SCHEMA`.

    Raise ValueError if a date does not exist.
    """
    exceptions: list[GrantedException] = []
    for entry in settings.get(KEY, ()):
        try:
            expires_on = date.fromisoformat(entry["expires_on"])
        except ValueError as error:
            raise ValueError(
                f"exception for {entry['resource']!r}: expected expires_on to be a day such as 2027-01-31,"
                f" got {entry['expires_on']!r}; correct it in the stack's policy file"
            ) from error
        exceptions.append(GrantedException(entry["resource"], entry["reason"], expires_on))
    return tuple(exceptions)


def longest(exceptions: Iterable[GrantedException], name: str, today: date) -> GrantedException | None:
    """Return the valid exception that covers a resource the longest, or None if there is none."""
    covering = [exception for exception in exceptions if exception.covers(name) and not exception.void(today)]
    return max(covering, key=lambda exception: exception.expires_on, default=None)


def file_errors(policy_file: object, rules: Iterable[About]) -> Iterator[tuple[str, str]]:
    """Yield the place and the text of every error in the content of a policy file. Places are keys, such as
    `rule.exceptions[0].expires_on`; empty for the whole file."""
    if not isinstance(policy_file, Mapping):
        yield "", f"expected rules with their settings, got {_shown(policy_file)}; write {{}} for none"
        return
    known = {about.id: about for about in rules}
    successors = {former: about.id for about in known.values() for former in about.replaces}
    for name, settings in cast(Mapping[str, object], policy_file).items():
        if name in known or name == _EVERY_RULE:
            excusable = name in known and known[name].excusable
            yield from ((f"{name}{place}", text) for place, text in _settings_errors(settings, excusable=excusable))
        elif successor := successors.get(name):
            advice = f"it is now part of {successor}; move its exceptions there, or remove them"
            yield name, f"expected the name of a rule, got {name!r}: {advice}"
        else:
            meant = next(iter(get_close_matches(name, known, n=1)), "")
            advice = f"did you mean {meant}?" if meant else "correct the name, or remove it if the rule is gone"
            yield name, f"expected the name of a rule, got {name!r}: {advice}"


def _settings_errors(settings: object, *, excusable: bool) -> Iterator[tuple[str, str]]:
    levels = ("advisory", "mandatory", "remediate", "disabled")
    if isinstance(settings, str):
        if settings not in levels:
            yield "", f"expected one of the levels {', '.join(levels)}, got {_shown(settings)}"
        return
    if not isinstance(settings, Mapping):
        yield "", f"expected a level, or a mapping with {KEY}, got {_shown(settings)}"
        return
    section = cast(Mapping[str, object], settings)
    for key in section.keys() - {KEY, "enforcementLevel"}:
        yield f".{key}", f"expected one of the keys {KEY} and enforcementLevel, got {key!r}"
    if (level := section.get("enforcementLevel", levels[0])) not in levels:
        yield ".enforcementLevel", f"expected one of the levels {', '.join(levels)}, got {_shown(level)}"
    entries = section.get(KEY, [])
    if not isinstance(entries, list):
        yield f".{KEY}", f"expected a list of exceptions, got {_shown(entries)}"
        return
    if entries and not excusable:
        yield f".{KEY}", "expected none, since this rule allows no exceptions; remove them"
        return
    for index, entry in enumerate(cast(list[object], entries)):
        yield from ((f".{KEY}[{index}]{place}", text) for place, text in _exception_errors(entry))


def _exception_errors(entry: object) -> Iterator[tuple[str, str]]:
    names = tuple(SCHEMA["items"]["properties"])
    if not isinstance(entry, Mapping):
        yield "", f"expected a mapping with {', '.join(names)}, got {_shown(entry)}"
        return
    written = cast(Mapping[str, object], entry)
    for key in sorted(written.keys() - {*names}):
        yield f".{key}", f"expected one of the keys {', '.join(names)}, got {key!r}"
    for name in names:
        value = written.get(name)
        if not isinstance(value, str) or not value:
            quoted = "; put it in quotation marks" if isinstance(value, date | int | float) else ""
            got = _shown(value) if name in written else "nothing"
            yield f".{name}", f"expected {name} of the exception, got {got}{quoted}"
    day = written.get("expires_on")
    if isinstance(day, str) and day and not _is_day(day):
        yield ".expires_on", f"expected a day such as 2027-01-31, got {day!r}"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _shown(value: object) -> str:
    return str(value) if isinstance(value, date) else json.dumps(value, default=str)

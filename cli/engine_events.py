"""What the events of a Pulumi engine tell of a plan: changes, broken rules, errors.

Owns their meaning. Who runs the engine is no concern of this module, nor how the answer is shown.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import TYPE_CHECKING

from infra.review.review import Change, Finding

if TYPE_CHECKING:
    from pulumi.automation import EngineEvent
    from pulumi.automation.events import StepEventMetadata

_LEFT_ALONE = ("same", "read", "refresh")
_OF_A_REPLACEMENT = ("replace", "-replacement", "-replaced", "-replace")
_PROVIDER = "pulumi:providers:"
"""Pulumi counts its own default ones neither as made nor as kept."""

_STACK = "::pulumi:pulumi:Stack::"
_TRACEBACK = "Traceback (most recent call last)"
_COLOUR = re.compile(r"<\{%.*?%\}>")
_LEVELS = ("mandatory", "advisory")
_SUMS_UP = ("preview failed", "update failed")
_ONLY_PLANNED = "expected resource operations for "
"""After the first failure of an `up` by a plan, Pulumi says this of every resource that comes later."""


def changes(events: Iterable["EngineEvent"]) -> tuple[Change, ...]:
    """What is not left as it is, once per resource, however many steps it takes."""
    return tuple(changes_by_urn(events).values())


def changes_by_urn(events: Iterable["EngineEvent"]) -> Mapping[str, Change]:
    """The same, by the URN of the resource."""
    found: dict[str, Change] = {}
    for step in _steps(events):
        operation = step.op.value
        if operation in _LEFT_ALONE:
            continue
        replaced = operation.endswith(_OF_A_REPLACEMENT)
        known = found.get(step.urn)
        paths = {*(known.properties if known else ()), *_differ(step)}
        found[step.urn] = Change(
            operation="replace" if replaced else operation,
            type=step.type,
            name=name(step.urn),
            properties=tuple(sorted(paths)),
        )
    return found


def unchanged(events: Iterable["EngineEvent"]) -> int:
    """How many resources are left as they are."""
    return len({step.urn for step in _steps(events) if step.op.value == "same"})


def findings(events: Iterable["EngineEvent"], severities: Mapping[str, str]) -> tuple[Finding, ...]:
    """Rules that are broken, the mandatory ones first.

    `severities` are by rule, for the Automation API leaves them out of its events.
    """
    broken = [event.policy_event for event in events if event.policy_event]
    return tuple(
        Finding(
            rule=told.policy_name,
            level=level,
            severity=severities.get(told.policy_name, "unknown"),
            resource=_of_a_resource(told.resource_urn),
            message=_plain(told.message),
        )
        for level in _LEVELS
        for told in broken
        if told.enforcement_level == level
    )


def rules_were_asked(events: Iterable["EngineEvent"]) -> bool:
    """Whether a policy pack ran to the end; that no rule is broken says little without it."""
    return any(event.summary_event.policy_packs for event in events if event.summary_event)


def errors(events: Iterable["EngineEvent"]) -> tuple[str, ...]:
    """Why the engine refuses the plan; what broken rules say is not among it."""
    # After its summary the engine tells of plugins that were slow to end, as errors.
    planning = takewhile(lambda event: event.summary_event is None, events)
    told = (event.diagnostic_event for event in planning if event.diagnostic_event)
    texts = (
        f"{name(each.urn)}: {_plain(each.message)}" if each.urn else _plain(each.message)
        for each in told
        if each.severity == "error" and not each.message.startswith(_ONLY_PLANNED)
    )
    return tuple(dict.fromkeys(text for text in texts if text not in _SUMS_UP))


def _steps(events: Iterable["EngineEvent"]) -> Iterable["StepEventMetadata"]:
    told = (event.resource_pre_event.metadata for event in events if event.resource_pre_event)
    return (step for step in told if not (step.type.startswith(_PROVIDER) and name(step.urn).startswith("default")))


def _differ(step: "StepEventMetadata") -> Iterable[str]:
    """A provider tells it in one of three ways, the most exact first."""
    return step.detailed_diff or step.diffs or step.keys or ()


def _of_a_resource(urn: str | None) -> str | None:
    """A rule on the stack as a whole is told of the resource that stands for it."""
    return name(urn) if urn and _STACK not in urn else None


def name(urn: str) -> str:
    """The resource's name within the program."""
    return urn.rpartition("::")[2]


def _plain(message: str) -> str:
    """Without colours, and without where in the program it was raised."""
    return _COLOUR.sub("", message).partition(_TRACEBACK)[0].strip()

"""The rules as policies of a Pulumi policy pack.

Owns the way from the SDK's types to the rules' own and back, and the text of a finding. What must
hold is the business of `policy.rules`, what may be broken that of `policy.exceptions`.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from typing import Any

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyConfigSchema,
    PolicyResource,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)
from pulumi_policy import proxy as sdk

from policy.exceptions import KEY, SCHEMA, GrantedException, granted, lapsed
from policy.rule import About, Broken, Declared, ResourceRule, Rule, StackRule
from policy.values import NotKnownYetError, Unknown

type Today = Callable[[], date]
type Report = Callable[[str, str | None], None]

_UNKNOWN = {value for name, value in vars(sdk).items() if name.startswith("UNKNOWN_")}


@contextmanager
def _unknown_as_pulumi_knows_it() -> Generator[None]:
    try:
        yield
    except NotKnownYetError as unknown:
        raise sdk.UnknownValueError(sdk.UNKNOWN_STRING_VALUE, list(unknown.path)) from unknown


def policies(rules: Iterable[Rule], today: Today) -> list[Policy]:
    """The rules as Pulumi runs them; exceptions are held against `today`."""
    return [
        _resource_policy(rule, today) if isinstance(rule, ResourceRule) else _stack_policy(rule, today)
        for rule in rules
    ]


def finding(about: About, broken: Broken, expired: Iterable[GrantedException]) -> str:
    """What a person reads below the rule's title: what is wrong, why it matters, what to do, where to read on."""
    return "\n".join(
        [
            broken.says,
            *(f"The exception until {each.expires_on} ({each.reason}) has expired." for each in expired),
            f"Why: {about.why}",
            f"Fix: {about.fix}",
            f"See: {about.link}",
        ]
    )


def _resource_policy(rule: ResourceRule, today: Today) -> ResourceValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: ResourceValidationArgs, report: Report) -> None:
        if rule.looks_at(args.resource_type):
            faults = (Broken(says, args.urn) for says in rule.check(_declared(args)))
            _tell(rule.about, faults, args.get_config(), today(), report)

    return ResourceValidationPolicy(validate=validate, **_described(rule.about))


def _stack_policy(rule: StackRule, today: Today) -> StackValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: StackValidationArgs, report: Report) -> None:
        faults = rule.check([_declared(resource) for resource in args.resources])
        _tell(rule.about, faults, args.get_config(), today(), report)

    return StackValidationPolicy(validate=validate, **_described(rule.about))


def _described(about: About) -> dict[str, Any]:
    return {
        "name": about.id,
        "description": about.title,
        "enforcement_level": EnforcementLevel(about.level),
        "severity": Severity(about.severity),
        "config_schema": PolicyConfigSchema({KEY: dict(SCHEMA)}),
        "tags": [about.group],
        "remediation_steps": about.fix,
        "url": about.link,
    }


def _tell(about: About, faults: Iterable[Broken], settings: Mapping[str, Any], day: date, report: Report) -> None:
    exceptions = granted(settings)
    for broken in faults:
        expired = lapsed(exceptions, _name(broken.urn), day)
        if expired is not None:
            report(finding(about, broken, expired), broken.urn)


def _declared(resource: ResourceValidationArgs | PolicyResource) -> Declared:
    parent = resource.opts.parent
    if isinstance(resource, PolicyResource):
        parent = resource.parent.urn if resource.parent else None
    return Declared(
        type=resource.resource_type,
        name=resource.name,
        urn=resource.urn,
        properties=_plain(resource.props, ()),
        protected=resource.opts.protect,
        delete_before_replace=bool(resource.opts.delete_before_replace),
        ignored_changes=tuple(resource.opts.ignore_changes),
        parent=parent,
    )


def _plain(value: Any, path: tuple[str, ...]) -> Any:
    """The value without the SDK's proxies, whose lists equal no other list and whose `in` trips over unknowns."""
    if isinstance(value, str):
        return Unknown(path) if value in _UNKNOWN else value
    if isinstance(value, Mapping):
        return {key: _plain(item, (*path, key)) for key, item in value["__target"].items()}
    if isinstance(value, Sequence):
        inner: Any = value
        return [_plain(item, (*path, str(index))) for index, item in enumerate(inner["__target"])]
    return value


def _name(urn: str | None) -> str:
    return (urn or "").rpartition("::")[2]

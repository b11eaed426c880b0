"""The rules as policies of a Pulumi policy pack. Converts the SDK's types and formats findings."""

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

from policy.exceptions import ENDING, KEY, NONE, SCHEMA, GrantedException, longest, read_exceptions, void
from policy.plan import Declared, NotKnownYetError, Unknown
from policy.rule import About, ResourceRule, Rule, StackRule, Violation

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
    """Return the rules as Pulumi policies, and the warning about exceptions that end soon."""
    plan = _Plan()
    asked = [
        _resource_policy(rule, plan, today) if isinstance(rule, ResourceRule) else _stack_policy(rule, plan, today)
        for rule in rules
    ]
    # This policy comes last: it reports what the others noted.
    return [*asked, _ending_policy(plan, today)]


def finding(about: About, message: str, void_exceptions: Iterable[str]) -> str:
    """Return the description of the rule below its title."""
    return "\n".join(
        [
            message,
            *void_exceptions,
            f"Why: {about.why}",
            f"Fix: {about.fix}",
            f"See: {about.link}",
        ]
    )


class _Plan:
    """What the program declares, as seen by the policies of each resource.

    Policies of the stack run last and receive the providers' answers. A provider that is not configured yet, such as
    that of a cluster that does not exist in a first preview, answers with empty objects.
    """

    def __init__(self) -> None:
        self._declared: dict[str, Declared] = {}
        self.needed: dict[tuple[str, GrantedException], None] = {}
        """Exceptions without which a rule would be broken, by the rule's id, in the order of the resources."""

    def resource(self, args: ResourceValidationArgs) -> Declared:
        """Return the resource as the program declares it."""
        if args.urn not in self._declared:
            self._declared[args.urn] = _convert(args)
        return self._declared[args.urn]

    def stack(self, args: StackValidationArgs) -> list[Declared]:
        """Return all resources, as the program declares them if that is known."""
        return [self._declared.get(resource.urn) or _convert(resource) for resource in args.resources]


def _resource_policy(rule: ResourceRule, plan: _Plan, today: Today) -> ResourceValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: ResourceValidationArgs, report: Report) -> None:
        # Every policy sees every resource, so that the policies of the stack know the whole plan.
        declared = plan.resource(args)
        violations = (Violation(message, args.urn) for message in rule.messages(declared))
        _report(rule, violations, args.get_config(), plan, today(), report)

    return ResourceValidationPolicy(validate=validate, **_describe(rule))


def _stack_policy(rule: StackRule, plan: _Plan, today: Today) -> StackValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: StackValidationArgs, report: Report) -> None:
        _report(rule, rule.check(plan.stack(args)), args.get_config(), plan, today(), report)

    return StackValidationPolicy(validate=validate, **_describe(rule))


def _ending_policy(plan: _Plan, today: Today) -> StackValidationPolicy:
    def validate(_: StackValidationArgs, report: Report) -> None:
        day = today()
        for rule, exception in plan.needed:
            if exception.ends_soon(day):
                message = (
                    f"the exception of {rule} for {exception.resource} ({exception.reason}) ends on"
                    f" {exception.expires_on}, in {(exception.expires_on - day).days} days"
                )
                report(finding(ENDING, message, []), None)

    return StackValidationPolicy(validate=validate, **_describe(ENDING))


def _describe(about: About) -> dict[str, Any]:
    return {
        "name": about.id,
        "description": about.title,
        "enforcement_level": EnforcementLevel(about.level),
        "severity": Severity(about.severity),
        "config_schema": PolicyConfigSchema({KEY: dict(SCHEMA if about.excusable else NONE)}),
        "remediation_steps": about.fix,
        "url": about.link,
    }


def _report(
    about: About, violations: Iterable[Violation], settings: Mapping[str, Any], plan: _Plan, day: date, report: Report
) -> None:
    exceptions = read_exceptions(settings) if about.excusable else ()
    for violation in violations:
        name = _name(violation.urn)
        reasons = void(exceptions, name, day)
        if reasons is not None:
            report(finding(about, violation.message, reasons), violation.urn)
        elif needed := longest(exceptions, name, day):
            plan.needed[about.id, needed] = None


def _convert(resource: ResourceValidationArgs | PolicyResource) -> Declared:
    parent = resource.opts.parent
    if isinstance(resource, PolicyResource):
        parent = resource.parent.urn if resource.parent else None
    return Declared(
        type=resource.resource_type,
        name=resource.name,
        urn=resource.urn,
        properties=_plain(resource.props, ()),
        delete_before_replace=bool(resource.opts.delete_before_replace),
        ignored_changes=tuple(resource.opts.ignore_changes),
        parent=parent,
    )


def _plain(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value without the SDK's proxies: their lists equal no other list, and `in` fails on unknowns."""
    if isinstance(value, str):
        return Unknown(path) if value in _UNKNOWN else value
    if isinstance(value, Mapping):
        return {key: _plain(item, (*path, key)) for key, item in value["__target"].items()}
    if isinstance(value, Sequence):
        inner: Any = value
        return [_plain(item, (*path, str(index))) for index, item in enumerate(inner["__target"])]
    return value


def _name(urn: str | None) -> str:
    # A name may contain `::`, but the parts before it may not.
    return (urn or "").split("::", 3)[-1]

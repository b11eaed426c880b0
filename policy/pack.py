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

from policy.exceptions import ENDING, KEY, NONE, NOTICE, SCHEMA, GrantedException, longest, read_exceptions
from policy.rule import About, Declared, NotKnownYetError, ResourceRule, Rule, StackRule, Unknown, Violation

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
    plan = _Plan(today)
    asked = [
        _resource_policy(rule, plan) if isinstance(rule, ResourceRule) else _stack_policy(rule, plan) for rule in rules
    ]
    # This policy comes last: it reports what the others noted.
    return [*asked, StackValidationPolicy(validate=plan.report_ending, **_describe(ENDING))]


def finding(about: About, message: str, void_exceptions: Iterable[str]) -> str:
    """Return the description of the rule below its title."""
    return "\n".join([message, *void_exceptions, f"Why: {about.why}", f"Fix: {about.fix}", f"See: {about.link}"])


class _Plan:
    """What the program declares, as seen by the policies of each resource.

    Policies of the stack run last and receive the providers' answers. A provider that is not configured yet, such as
    that of a cluster that does not exist in a first preview, answers with empty objects.
    """

    def __init__(self, today: Today) -> None:
        self._today = today
        self._declared: dict[str, Declared] = {}
        self._needed: dict[tuple[str, GrantedException], None] = {}
        """Exceptions without which a rule would be broken, by the rule's id, in the order of the resources."""

    def resource(self, args: ResourceValidationArgs) -> Declared:
        """Return the resource as the program declares it."""
        if args.urn not in self._declared:
            self._declared[args.urn] = _convert(args)
        return self._declared[args.urn]

    def stack(self, args: StackValidationArgs) -> list[Declared]:
        """Return all resources, as the program declares them if that is known."""
        return [self._declared.get(resource.urn) or _convert(resource) for resource in args.resources]

    def report(
        self, about: About, violations: Iterable[Violation], settings: Mapping[str, Any], report: Report
    ) -> None:
        """Report the violations that no exception in the rule's settings covers, and note the exceptions that do."""
        exceptions, day = read_exceptions(settings) if about.excusable else (), self._today()
        for violation in violations:
            # A name may contain `::`, but the parts of a URN before it may not.
            name = (violation.urn or "").split("::", 3)[-1]
            if needed := longest(exceptions, name, day):
                self._needed[about.id, needed] = None
            else:
                void = (exception.void(day) for exception in exceptions if exception.covers(name))
                report(finding(about, violation.message, filter(None, void)), violation.urn)

    def report_ending(self, _: StackValidationArgs, report: Report) -> None:
        """Report the needed exceptions whose last day is within the next `NOTICE`."""
        day = self._today()
        for rule, exception in self._needed:
            if exception.expires_on - day <= NOTICE:
                message = (
                    f"the exception of {rule} for {exception.resource} ({exception.reason}) ends on"
                    f" {exception.expires_on}, in {(exception.expires_on - day).days} days"
                )
                report(finding(ENDING, message, []), None)


def _resource_policy(rule: ResourceRule, plan: _Plan) -> ResourceValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: ResourceValidationArgs, report: Report) -> None:
        # Every policy sees every resource, so that the policies of the stack know the whole plan.
        declared = plan.resource(args)
        violations = (Violation(message, args.urn) for message in rule.messages(declared))
        plan.report(rule, violations, args.get_config(), report)

    return ResourceValidationPolicy(validate=validate, **_describe(rule))


def _stack_policy(rule: StackRule, plan: _Plan) -> StackValidationPolicy:
    @_unknown_as_pulumi_knows_it()
    def validate(args: StackValidationArgs, report: Report) -> None:
        plan.report(rule, rule.check(plan.stack(args)), args.get_config(), report)

    return StackValidationPolicy(validate=validate, **_describe(rule))


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


def _convert(resource: ResourceValidationArgs | PolicyResource) -> Declared:
    return Declared(
        type=resource.resource_type,
        name=resource.name,
        urn=resource.urn,
        properties=_plain(resource.props, ()),
        delete_before_replace=bool(resource.opts.delete_before_replace),
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

"""Refuses to change a stack whose time is over: its budget's last day, or the end of an environment.

Owns one record in the stack's state, made only where there is such an end, and the hook on it, which runs in
previews as well.
"""

from datetime import UTC, datetime

import pulumi

from infra.settings.errors import Fault, SettingsError
from infra.settings.schema import Budget, Environment

_DESTROY = "pulumi destroy"


def now() -> datetime:
    """The time that it is in UTC."""
    return datetime.now(UTC)


def expired(budget: Budget | None, environment: Environment | None, at: datetime) -> list[Fault]:
    """The faults of a stack whose time is over."""
    faults: list[Fault] = []
    if budget and budget.expires_on and at.date() > budget.expires_on:
        ways = f"set a later one, or destroy the stack: {_DESTROY}"
        day = f"a day that has not passed on {at.date()}"
        faults.append(Fault("budget.expires_on", day, str(budget.expires_on), ways))
    if environment and at >= environment.end:
        ways = f"destroy it: multislice env destroy, or {_DESTROY}; a later time keeps it"
        time = f"a time after {at:%Y-%m-%dT%H:%M:%SZ}"
        faults.append(Fault("environment.expires_at", time, environment.expires_at, ways))
    return faults


def changeable_until(budget: Budget | None, environment: Environment | None, at: datetime) -> list[pulumi.Resource]:
    """Declare the ends of the stack, at a time; all that costs depends on what is returned."""
    ends = _ends(budget, environment)
    if not ends:
        return []
    faults = expired(budget, environment, at)

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        if faults:
            raise SettingsError(faults)

    # What is recorded differs once the time is over, so that there is an update to refuse whatever else changes.
    record = {**ends, "expired": bool(faults)}
    hook = pulumi.ResourceHook("has-not-expired", refuse, pulumi.ResourceHookOptions(on_dry_run=True))
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    known_before = [pulumi.Alias(name="budget")]
    return [pulumi.Stash("expiry", input=record, opts=pulumi.ResourceOptions(hooks=watched, aliases=known_before))]


def _ends(budget: Budget | None, environment: Environment | None) -> dict[str, str]:
    of_budget = {"expires_on": str(budget.expires_on)} if budget and budget.expires_on else {}
    return of_budget | ({"expires_at": environment.expires_at} if environment else {})

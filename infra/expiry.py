"""Refuses to change a stack whose budget has expired.

Owns one record in the stack's state, made only where `budget.expires_on` is set, and the hook on it,
which runs in previews as well. A fault of the settings would stop a `destroy` too, since that runs
the program; a hook on create and update does not.
"""

from datetime import UTC, date, datetime

import pulumi

from infra.faults import SettingsError
from infra.rules.budget import expired
from infra.spending import Budget


def today() -> date:
    """The day that it is in UTC."""
    return datetime.now(UTC).date()


def changeable_until(budget: Budget | None, day: date) -> list[pulumi.Resource]:
    """Declare the last day of the budget, on `day`; all that costs depends on what is returned."""
    if budget is None or budget.expires_on is None:
        return []
    fault = expired(budget, day)

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        if fault:
            raise SettingsError([fault])

    # What is recorded differs once the day has passed, so that there is an update to refuse whatever else changes.
    record = {"expires_on": str(budget.expires_on), "expired": fault is not None}
    hook = pulumi.ResourceHook("budget-has-not-expired", refuse, pulumi.ResourceHookOptions(on_dry_run=True))
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    return [pulumi.Stash("budget", input=record, opts=pulumi.ResourceOptions(hooks=watched))]

"""Declares what must be true of a stack before it is brought up: it has time left, and no example values."""

from datetime import UTC, datetime

import pulumi

from infra.review.obstacles import expiry_errors, placeholders
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.schema import Budget
from infra.stack.settings.stack import Settings


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def requirements(settings: Settings, at: datetime) -> list[pulumi.Resource]:
    """Declare what must be true of the stack. Everything that costs money depends on the result."""
    return [*require_time_left(settings.budget, at), *require_own_values(settings)]


def require_time_left(budget: Budget | None, at: datetime) -> list[pulumi.Resource]:
    """Declare the end times of the stack, if it has any. Previews and updates are refused after these times."""
    ends = {"expires_on": str(budget.expires_on)} if budget and budget.expires_on else {}
    if not ends:
        return []
    errors = expiry_errors(budget, at, pulumi.get_stack())
    # The record changes when the time is over, so that there is an update to refuse even if nothing else changes.
    record = {**ends, "expired": bool(errors)}
    hook = _refusal("has-not-expired", errors, in_previews=True)
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    former_name = [pulumi.Alias(name="budget")]
    return [pulumi.Stash("expiry", input=record, opts=pulumi.ResourceOptions(hooks=watched, aliases=former_name))]


def require_own_values(settings: Settings) -> list[pulumi.Resource]:
    """Declare the example values that are left, if any.

    Updates are refused, but not previews, so that the examples in `stacks/` can be previewed.
    """
    found = placeholders(settings)
    if not found:
        return []
    hook = _refusal("no-placeholders", found, in_previews=False)
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    record = {error.path: error.got for error in found}
    return [pulumi.Stash("placeholders", input=record, opts=pulumi.ResourceOptions(hooks=watched))]


def _refusal(name: str, errors: list[FieldError], *, in_previews: bool) -> pulumi.ResourceHook:

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        if errors:
            raise SettingsError(errors)

    return pulumi.ResourceHook(name, refuse, pulumi.ResourceHookOptions(on_dry_run=in_previews))

"""Reads the configuration of the running stack, from `pulumi.Config` to one frozen `Settings`, and declares what must
be true of it before it is brought up. No other module reads it."""

import json
from collections.abc import Iterable
from datetime import datetime

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret

from infra.review.obstacles import expiry_errors, placeholders
from infra.stack.project import STACKS, ProjectError, find_project
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.read import read_values
from infra.stack.settings.schema import Budget
from infra.stack.settings.stack import Settings
from infra.stack.settings.values import HIDDEN, SECRETS, hide_texts
from infra.stack.settings.yaml_file import UnreadableError, read_yaml


def load(config: pulumi.Config) -> Settings:
    """Return the settings of the running stack. Raise SettingsError with all errors if they are not valid."""
    prefix = f"{config.name}:"
    keys = [key.removeprefix(prefix) for key in CONFIG.get() if key.startswith(prefix)]
    stack = pulumi.get_stack()
    try:
        return read_values({key: _read_key(config, key) for key in keys}, stack)
    except SettingsError as error:
        raise SettingsError(error.errors, _located(error.errors, stack)) from None


def _located(errors: Iterable[FieldError], stack: str) -> list[str]:
    """Return the errors with file and line, or nothing if the stack's file is not in its usual place."""
    try:
        file = read_yaml(find_project() / STACKS / f"Pulumi.{stack}.yaml")
    except (ProjectError, OSError, UnreadableError):
        return []
    return file.report(errors, file.lines.below("config"))


def _read_key(config: pulumi.Config, key: str) -> object:
    """Return the value of a section. It is hidden if any part of it is secret, because Pulumi does not say which
    part."""
    if not is_config_secret(config.full_key(key)):
        return _plain_value(config.require(key))
    return hide_texts(_plain_value(config.require(key))) if key == SECRETS else HIDDEN


def _plain_value(text: str) -> object:
    """Parse a value of Pulumi: JSON for structured values, plain text for all others."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


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

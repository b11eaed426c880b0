"""Reads the configuration of the running stack, from `pulumi.Config` to one frozen `Settings`. No other module reads
it."""

import json
from collections.abc import Iterable

import pulumi
from pulumi.runtime.config import CONFIG, is_config_secret

from infra.stack.project import STACKS, ProjectError, find_project
from infra.stack.settings.errors import FieldError, SettingsError
from infra.stack.settings.read import read_values
from infra.stack.settings.stack import Settings
from infra.stack.settings.values import HIDDEN, SECRETS, hide_texts
from infra.stack.settings.yaml_file import UnreadableError, read_yaml


def load(config: pulumi.Config) -> Settings:
    """Return the settings of the running stack.

    Raises:
        SettingsError: they are not valid; lists all errors.
    """
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

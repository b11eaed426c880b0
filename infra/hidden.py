"""The mark that stands for a secret wherever settings are read: that there is one, never its value.

Owns how such marks come into a section, from a stack file or from Pulumi's answer. Where they may
stand is the business of `infra.rules.secrets`; values go from Pulumi to the cluster in `infra.secrets` alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

SECTION = "secrets"
"""The one section of a stack file that may hold secrets."""


@dataclass(frozen=True)
class Hidden:
    """A text that Pulumi keeps as a secret."""

    def __repr__(self) -> str:
        return "[secret]"


HIDDEN = Hidden()


def encrypted(value: object) -> bool:
    """Whether this is how Pulumi writes a secret into a stack file."""
    return isinstance(value, Mapping) and list(cast(Mapping[str, object], value)) == ["secure"]


def of_file(value: object) -> object:
    """What stands in a stack file, with a mark for each encrypted text."""
    if encrypted(value):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: of_file(item) for key, item in cast(Mapping[str, object], value).items()}
    if isinstance(value, list):
        return [of_file(item) for item in cast(list[object], value)]
    return value


def of_texts(value: object) -> object:
    """A decrypted section: a mark for each text in it, None for what is no text."""
    if not isinstance(value, Mapping):
        return None
    entries = cast(Mapping[str, object], value)
    return {name: HIDDEN if isinstance(text, str) and text else None for name, text in entries.items()}

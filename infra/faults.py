"""What is wrong with a stack file, said so that it can be put right.

Owns the form of a fault and the translation of pydantic's errors into it. Knows no rule.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_MARK_OF_A_KEY = "[key]"
_WORDS_BEFORE_THE_EXPECTATION = ("Input should be ", "Value error, ", "String should ", "Assertion failed, ")


@dataclass(frozen=True)
class Fault:
    """One thing wrong in the settings."""

    path: str
    """Where, as keys below `config` of the stack file, such as `slices.trillium.topology`."""
    expected: str
    got: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}: expected {self.expected}, got {self.got}; {self.fix}"


class SettingsError(ValueError):
    """The stack file is not valid; carries every fault that was found."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        lines = "\n".join(f"  - {fault}" for fault in self.faults)
        super().__init__(f"the settings of this stack have {len(self.faults)} fault(s):\n{lines}")


def from_validation(error: ValidationError, path: str, model: type[BaseModel]) -> list[Fault]:
    """The faults that pydantic found in the section at `path`."""
    return [_fault(detail, path, model) for detail in error.errors()]


def unknown_key(path: str, key: str, known: Iterable[str]) -> Fault:
    """A key that no section has, with the nearest that exists."""
    names = sorted(known)
    close = get_close_matches(key, names, n=1)
    return Fault(
        path=f"{path}.{key}" if path else key,
        expected=f"one of the keys {', '.join(names)}",
        got=repr(key),
        fix=f"rename it to {close[0]}" if close else "remove it",
    )


def missing_key(path: str) -> Fault:
    """A key that must be there."""
    return Fault(path=path, expected="a value", got="nothing", fix=f"add {path} to the stack file")


def _fault(detail: ErrorDetails, path: str, model: type[BaseModel]) -> Fault:
    keys, known = _followed(model, detail["loc"])
    place = _joined(path, *keys)
    match detail:
        case {"type": "missing"}:
            return missing_key(place)
        case {"type": "union_tag_not_found", "ctx": {"discriminator": quoted}}:
            return missing_key(f"{place}.{quoted.strip("'")}")
        case {"type": "extra_forbidden"}:
            return unknown_key(_joined(path, *keys[:-1]), keys[-1], known)
        case {"type": "union_tag_invalid", "ctx": {"expected_tags": tags, "tag": tag}}:
            return Fault(place, f"one of {tags}", repr(tag), f"change {place} in the stack file")
        case _:
            got = repr(detail["input"])
            return Fault(place, expectation(detail["msg"]), got, f"change {place} in the stack file")


def _joined(*keys: str) -> str:
    return ".".join(filter(None, keys))


def expectation(message: str) -> str:
    """Pydantic's message without the words that repeat what a fault says anyway."""
    for words in _WORDS_BEFORE_THE_EXPECTATION:
        message = message.removeprefix(words)
    return message


def _followed(model: type[BaseModel], location: Iterable[str | int]) -> tuple[list[str], Iterable[str]]:
    """The keys of the file that lead to a place, and the keys that exist beside the last of them.

    Pydantic puts the chosen kind into the location of what is wrong with one of several kinds, and a mark behind a
    key that is wrong itself.
    """
    keys: list[str] = []
    models: list[type[BaseModel]] = [model]
    known: Iterable[str] = model.model_fields
    for part in map(str, location):
        if part == _MARK_OF_A_KEY:
            continue
        if len(models) > 1:
            models = [candidate for candidate in models if part in _tags(candidate)]
            known = models[0].model_fields if models else ()
            continue
        keys.append(part)
        known = models[0].model_fields if models else ()
        models = _models(models[0].model_fields[part].annotation) if part in known else []
    return keys, known


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _tags(model: type[BaseModel]) -> list[object]:
    return [tag for field in model.model_fields.values() for tag in get_args(field.annotation)]

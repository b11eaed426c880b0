"""Reading the sections of a stack file, each by its class; what is wrong is kept, so that all of it is told at once.

Owns the way from plain values to one section. Which sections there are is the business of `infra.settings`.
"""

from collections.abc import Mapping
from typing import cast

from pydantic import TypeAdapter, ValidationError

from infra.faults import Fault, expectation, from_validation, missing_key, no_entries
from workloads.spec import Spec


def read[S: Spec](value: object, path: str, model: type[S]) -> tuple[S | None, list[Fault]]:
    """The section at `path`, None if it cannot be read, and its faults."""
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        return _without_unknown_keys(value, model), from_validation(error, path, model)


def _without_unknown_keys[S: Spec](value: object, model: type[S]) -> S | None:
    """The section less keys it does not have, so that a misspelt one does not hide other faults."""
    try:
        return model.model_validate(value, extra="ignore")
    except ValidationError:
        return None


def entries(value: object) -> Mapping[str, object]:
    """What is in a mapping; nothing in what is none."""
    return cast(Mapping[str, object], value) if isinstance(value, Mapping) else {}


def mappings(value: object) -> Mapping[str, Mapping[str, object]]:
    """The same of a mapping of mappings."""
    return {name: entries(entry) for name, entry in entries(value).items()}


class Sections:
    """The sections of one stack file."""

    faults: list[Fault]
    """Of all that was read so far."""

    def __init__(self, raw: Mapping[str, object]) -> None:
        """`raw` is the stack file's values by section."""
        self.raw = raw
        self.faults = []

    def required[S: Spec](self, name: str, model: type[S]) -> S | None:
        """A section that must be there."""
        if name not in self.raw:
            self.faults.append(missing_key(name))
            return None
        return self._read(self.raw[name], name, model)

    def optional[S: Spec](self, name: str, model: type[S]) -> S | None:
        """A section that may be missing."""
        return self._read(self.raw[name], name, model) if name in self.raw else None

    def whole[S: Spec](self, name: str, model: type[S]) -> S:
        """A section whose values all have defaults, which it is made of where it is missing or cannot be read."""
        return self.optional(name, model) or model()

    def plain[S: Spec](self, model: type[S]) -> S:
        """Single values of the whole file, with the defaults of those that are missing or cannot be read."""
        return self._read({key: self.raw[key] for key in model.model_fields if key in self.raw}, "", model) or model()

    def named[S: Spec](self, name: str, model: type[S], key: TypeAdapter[str]) -> dict[str, S]:
        """The readable ones of several sections of one kind, of which there must be one at least."""
        written = entries(self.raw.get(name))
        if not written:
            self.faults.append(no_entries(name, self.raw.get(name)))
        found: dict[str, S] = {}
        for entry_name, value in written.items():
            path = f"{name}.{entry_name}"
            try:
                key.validate_python(entry_name)
            except ValidationError as error:
                self.faults.append(Fault(path, expectation(error.errors()[0]["msg"]), repr(entry_name), "rename it"))
            if section := self._read(value, path, model):
                found[entry_name] = section
        return found

    def _read[S: Spec](self, value: object, path: str, model: type[S]) -> S | None:
        section, faults = read(value, path, model)
        self.faults += faults
        return section

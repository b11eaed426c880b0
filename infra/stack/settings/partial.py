"""Reads as much of a section as is valid, so that an error in one value does not hide errors in the others."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, ClassVar, cast

from pydantic import BaseModel, ValidationError, create_model

from infra.stack.settings.errors import FieldError, from_validation
from workloads.spec import Spec


class WrongValueError(Exception):
    """Raised by a check that needs a value which is itself wrong, and was reported already."""


class _Partial(BaseModel):
    """A section of which some values are wrong. Nothing can use those."""

    wrong_values: ClassVar[frozenset[str]] = frozenset()

    def __getattribute__(self, name: str) -> Any:
        if name in type(self).wrong_values:
            raise WrongValueError(name)
        return super().__getattribute__(name)


def read_section[S: Spec](value: object, path: str, model: type[S]) -> tuple[S | None, list[FieldError]]:
    """Return the section at `path` and its errors.

    Unknown keys are left out. Wrong and missing values raise WrongValueError when they are used. The section is `None`
    if it is not a mapping, or if its values contradict each other.
    """
    try:
        return model.model_validate(value), []
    except ValidationError as error:
        errors = from_validation(error, path, model)
        wrong = {str(detail["loc"][0]) if detail["loc"] else "" for detail in error.errors()}
    if not isinstance(value, Mapping):
        return None, errors
    written = cast(Mapping[str, object], value)
    wrong &= model.model_fields.keys() | {""}
    readable = {key: item for key, item in written.items() if key not in wrong}
    try:
        return _without(model, frozenset(wrong)).model_validate(readable, extra="ignore"), errors
    except (ValidationError, WrongValueError):
        return None, errors


def unread[S: Spec](model: type[S]) -> S:
    """Return a section of which no value could be read."""
    return _without(model, frozenset(model.model_fields)).model_validate({})


@cache
def _without[S: Spec](model: type[S], wrong: frozenset[str]) -> type[S]:
    """Return a class of sections whose `wrong` values are not read."""
    if not wrong - {""}:
        return model
    values: dict[str, Any] = {name: (Any, None) for name in wrong - {""}}
    made = create_model(model.__name__, __base__=(_Partial, model), **values)
    cast(type[_Partial], made).wrong_values = wrong
    return cast(type[S], made)


def each(*checks: Iterator[FieldError]) -> Iterator[FieldError]:
    """Yield the errors of all checks. A check that needs a wrong value ends there, and the others go on."""
    for check in checks:
        with suppress(WrongValueError):
            yield from check

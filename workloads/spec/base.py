"""Base of all specifications."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError


def _whole_number(written: object) -> object:
    if isinstance(written, bool | str):
        raise PydanticCustomError("int_type", "Input should be a valid integer")
    return written


def _number(written: object) -> object:
    if isinstance(written, bool | str):
        raise PydanticCustomError("float_type", "Input should be a valid number")
    return written


WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
"""An integer, but neither `true`, which Python takes for 1, nor a string that looks like a number."""
NUMBER = BeforeValidator(_number)
"""Validator of numbers with decimals, also not from strings. In an annotation it comes after limits that pydantic must
check natively: as a multiple of 0.001, only the native check accepts 2.5."""
Number = Annotated[float, NUMBER]
PositiveInt = Annotated[WholeNumber, Field(gt=0)]
Flag = Annotated[bool, Field(strict=True)]
"""`true` or `false`, but no string or number that looks like one."""


class Spec(BaseModel):
    """Base of all specifications. It is immutable and refuses unknown keys, and numbers and texts that JSON cannot
    represent."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*")
    @classmethod
    def _is_unicode(cls, value: object) -> object:
        if isinstance(value, str) and any(0xD800 <= ord(letter) <= 0xDFFF for letter in value):
            raise PydanticCustomError("string_unicode", "Input should be text without lone surrogates")
        return value

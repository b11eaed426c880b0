"""Base of all specifications."""

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
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
"""Neither `true`, which Python takes for 1, nor a text that looks like a number."""
NUMBER = BeforeValidator(_number)
"""The same with decimals, behind limits that pydantic has to judge itself: it takes 2.5 for a multiple of 0.001."""
Number = Annotated[float, NUMBER]
PositiveInt = Annotated[WholeNumber, Field(gt=0)]


class Spec(BaseModel):
    """Immutable; unknown keys are refused, and numbers that JSON cannot write."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

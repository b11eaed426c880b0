"""Base of all specifications."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]


class Spec(BaseModel):
    """Immutable; unknown keys are refused, and numbers that JSON cannot write."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

"""Base of all specifications."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PositiveInt = Annotated[int, Field(gt=0)]


class Spec(BaseModel):
    """Immutable, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

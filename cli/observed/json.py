"""What was seen, as JSON for a program or a page."""

from collections.abc import Mapping

from pydantic_core import to_json


def as_json(answer: Mapping[str, object], indent: int | None = 1) -> str:
    """One object; numbers that are not finite are null, for JSON has none."""
    return to_json(answer, indent=indent, inf_nan_mode="null").decode()

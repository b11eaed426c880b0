"""Says how to write a value of a stack file that has the wrong type, such as `4h`, `20Gi`, `10,000` or `2x8`."""

import math
import re
from collections.abc import Iterable

_NUMBER = re.compile(r"[$€]?\s*([-+]?(?:\d[\d,_]*)?(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z%]*)", re.IGNORECASE)
_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "%": 0.01, "usd": 1.0}
"""Factors by what may follow a number, in lower case."""
_SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}
_GIB = {
    unit: 2.0**power
    for prefix, power in {"m": -10, "g": 0, "t": 10}.items()
    for unit in (f"{prefix}i", f"{prefix}ib", f"{prefix}b", prefix)
}
_UNITS = {
    "seconds": _SECONDS,
    "minutes": {unit: seconds / 60 for unit, seconds in _SECONDS.items()},
    "hours": {unit: seconds / 3600 for unit, seconds in _SECONDS.items()},
    "gib": _GIB,
    "gb": _GIB,
}
"""Factors by the last word of a setting's name, such as that of `max_hours`."""
_TRUE, _FALSE = ("true", "yes", "on", "y", "1"), ("false", "no", "off", "n", "0")


def repair(kind: str, setting: str, got: object, keys: Iterable[str] = ()) -> str:
    """Return how to write a value of the wrong type as a `kind` of value; empty if that is unknown.

    `setting` is the last key of its path, and `keys` are those that the value must have if it is a mapping.
    """
    match kind, got:
        case "text", bool() | int() | float():
            return f"put it in quotation marks: '{str(got).lower()}'"
        case "a list", str():
            return f"write it as a list: [{', '.join(re.findall(r'[^\s,]+', got))}]"
        case (("a whole number" | "a number"), str()) if number := _number(
            got, setting, whole=kind == "a whole number"
        ):
            return f"write {number}{' without quotation marks' if number == got else ''}"
        case "true or false", str() | int() | float() if word := _word(got):
            return f"write {word}{' without quotation marks' if word == got else ''}"
        case "a date, YYYY-MM-DD", _:
            return "write it as in 2027-12-31"
        case "a mapping of keys to values", _ if names := list(keys):
            return f"write {setting}: {{{', '.join(_entries(names, got))}}}"
        case _:
            return ""


def _word(got: object) -> str:
    text = str(got).lower()
    return "true" if text in _TRUE else "false" if text in _FALSE else ""


def _entries(keys: list[str], got: object) -> list[str]:
    """Return the entries of a mapping, with the numbers of a text such as `2x8` as the values of the first ones."""
    parts = re.split(r"\s*[xX×*]\s*", got) if isinstance(got, str) else []
    if len(parts) > 1 and len(parts) <= len(keys) and all(map(str.isdecimal, parts)):
        return [f"{key}: {part}" for key, part in zip(keys, parts, strict=False)]
    return [f"{key}: ..." for key in keys]


def _number(text: str, setting: str, *, whole: bool) -> str:
    """Return the number in a text, in the unit of the setting and without an exponent; empty if there is none."""
    found = _NUMBER.fullmatch(text.strip())
    units = _SCALES | _UNITS.get(setting.rpartition("_")[2], {})
    if found is None or (unit := found[2].lower()) not in units:
        return ""
    try:
        number = float(found[1].replace(",", "").replace("_", "")) * units[unit]
    except ValueError:
        return ""
    # No setting takes a negative number.
    if not (math.isfinite(number) and number >= 0) or (whole and not number.is_integer()):
        return ""
    return f"{number:.0f}" if number.is_integer() else f"{number:.10g}"

"""Errors of a stack file: where, what was expected, what was found, and how to fix it.

A value such as `2 h` that is plain text gets the number that it means as its fix.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_KEY_MARK = "[key]"
_PYDANTIC_PREFIXES = ("Input should be ", "Value error, ", "String should ", "Assertion failed, ")
_MIN_SIMILARITY = 0.65
"""Least similarity of a misspelt name. With less, `count` would be taken for `cloud`."""
_WORDS_OF_OTHERS = {
    "spot": ("capacity", "write capacity: spot"),
    "preemptible": ("capacity", "write capacity: spot"),
    "on_demand": ("capacity", "write capacity: on-demand"),
    "reserved": ("capacity", "write capacity: {kind: reservation, name: NAME}"),
    "reservation": ("capacity", "write capacity: {kind: reservation, name: NAME}"),
    "num_slices": ("count", "write count"),
    "tpu_type": ("topology", "write topology, such as topology: v6e-16"),
}
"""Keys of other tools, each with the key that has the value here and how to write it."""
_EXAMPLES = {"a whole number": "such as 16", "a number": "such as 0.5"}
_FILLED_IN = frozenset(("name", "team"))
"""Keys of a job that `infra.stack.settings.read` fills in, although the class of the job requires them."""
_MAX_SHOWN_CHARACTERS = 120
_KINDS = {
    "a mapping of keys to values": ("model_type", "model_attributes_type", "dict_type", "mapping_type"),
    "a list": ("tuple_type", "list_type"),
    "text": ("string_type",),
    "a whole number": ("int_type", "int_parsing", "int_parsing_size", "int_from_float"),
    "a number": ("float_type", "float_parsing"),
    "true or false": ("bool_type", "bool_parsing"),
    "a date, YYYY-MM-DD": (
        "date_type",
        "date_parsing",
        "date_from_datetime_parsing",
        "date_from_datetime_inexact",
    ),
}
_EXPECTED = {error: kind for kind, errors in _KINDS.items() for error in errors}
"""Description of a valid value in the words of a stack file, by pydantic's type of error."""


_SUMS = (
    "slices sum their gradients in each step",
    "remove it; a larger global_batch with accumulation sums less often per token",
)
_REMOVED = {
    "slice_failure": (
        "all slices of a job restart together",
        "remove it; a training job repeats fewer steps with training.local_save_every_steps, and programs that need not"
        " stop together are a job each",
    ),
    "ram_disk_gib": (
        "the newest state stays in the memory of the pods",
        "remove it; training.local_save_every_steps of a job is enough",
    ),
    "lost_rows": ("every step has all rows of its batch", "remove it"),
    **dict.fromkeys(("sync_every", "sync_fragments", "outer_learning_rate", "outer_momentum"), _SUMS),
}
"""Why each setting that existed once does not exist any more, and what to write instead."""


@dataclass(frozen=True)
class FieldError:
    """One error of a stack file."""

    path: str
    """Keys below `config` of the stack file, such as `slices.trillium.topology`."""
    expected: str
    got: str
    fix: str
    meant: str = ""
    """Probable intended value, if it can be guessed; otherwise empty."""

    def __str__(self) -> str:
        wrong = f"xpected {self.expected}, got {self.got}; {self.fix}"
        return f"{self.path}: did you mean {self.meant}? E{wrong}" if self.meant else f"{self.path}: e{wrong}"


class SettingsError(ValueError):
    """Raised for an invalid stack file. Contains all errors that were found."""

    def __init__(self, errors: Iterable[FieldError], located: Iterable[str] = ()) -> None:
        """`located` contains the same errors with file and line, if those are known."""
        self.errors = tuple(errors)
        lines = "\n".join([*located] or [f"  - {error}" for error in self.errors])
        super().__init__(f"the settings of this stack have {count_errors(len(self.errors))}:\n{lines}")


def count_errors(number: int) -> str:
    """Return `1 error`, or `2 errors`."""
    return f"{number} error{'' if number == 1 else 's'}"


def from_validation(error: ValidationError, path: str, model: type[BaseModel]) -> list[FieldError]:
    """Return the errors that pydantic found in the section at `path`. A misspelt key is not also reported as
    missing."""
    errors = [_translate(detail, path, model) for detail in error.errors()]
    parts = ((each.path.rpartition("."), each.meant) for each in errors)
    meant = {_join(parent, word) for (parent, _, key), meant in parts if (word := meant or _word_here(key)[0])}
    return [each for each in errors if each != missing_key(each.path) or each.path not in meant]


def nearest(word: object, names: Iterable[str]) -> str:
    """Return the name that was probably meant by another word. Empty if no name is similar."""
    plain = {_plain(name): name for name in names}
    close = get_close_matches(_plain(str(word)), plain, n=1, cutoff=_MIN_SIMILARITY)
    return plain[close[0]] if close else ""


def _plain(word: str) -> str:
    return re.sub(r"[\s_-]+", "-", word.strip().lower())


def unknown_key(path: str, key: str, known: Iterable[str]) -> FieldError:
    """Return the error of a key that does not exist in its section, with the most similar existing key, or what to
    write instead of a removed setting."""
    if key in _REMOVED:
        since, instead = _REMOVED[key]
        return FieldError(_join(path, key), f"no such setting any more, since {since}", repr(key), instead)
    names = sorted(known)
    instead, fix = _word_here(key)
    if instead in names and key not in names:
        return FieldError(_join(path, key), f"one of the keys {', '.join(names)}", repr(key), fix)
    meant = nearest(key, names)
    fix = f"rename it to {meant}" if meant else "remove it"
    return FieldError(_join(path, key), f"one of the keys {', '.join(names)}", repr(key), fix, meant)


def _word_here(key: str) -> tuple[str, str]:
    """Return the key that has the value of another tool's key, and how to write it; empty if there is none."""
    return _WORDS_OF_OTHERS.get(key.lower().replace("-", "_"), ("", ""))


def missing_key(path: str) -> FieldError:
    """Return the error of a required key that is missing."""
    return FieldError(path, "a value", "nothing", f"add {path} to the stack file")


def no_entries(name: str, got: object) -> FieldError:
    """Return the error of a section that needs at least one named entry but has none."""
    return FieldError(name, "a mapping with at least one entry by name", show(got), f"add one to {name}")


def show(value: object) -> str:
    """Return a value as written in a stack file, shortened if it is long."""
    match value:
        case None:
            text = "nothing"
        case bool():
            text = str(value).lower()
        case date():
            text = str(value)
        case BaseModel():
            text = repr(value.model_dump(mode="json", exclude_unset=True))
        case tuple():
            text = repr([*value])
        case _:
            text = repr(value)
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[:_MAX_SHOWN_CHARACTERS]} ..."


def _translate(detail: ErrorDetails, path: str, model: type[BaseModel]) -> FieldError:
    keys, known, inner = _follow(model, detail["loc"])
    place = _join(path, *keys)
    got, change = show(detail["input"]), f"change {place} in the stack file"
    match detail:
        case {"type": "missing"}:
            return missing_key(place)
        case {"type": "union_tag_not_found", "ctx": {"discriminator": quoted}}:
            return missing_key(f"{place}.{quoted.strip("'")}")
        case {"type": "extra_forbidden"}:
            return unknown_key(_join(path, *keys[:-1]), keys[-1], known)
        case {"type": "union_tag_invalid", "ctx": {"expected_tags": tags, "tag": tag}}:
            return _of_choice(place, tags, tag, repr(tag))
        case {"type": "literal_error", "ctx": {"expected": choices}}:
            return _of_choice(place, choices, detail["input"], got)
        case {"ctx": {"meant": meant}}:
            return FieldError(place, expectation(detail["msg"]), got, f"write {meant}", meant)
        case {"ctx": {"fix": fix}}:
            return FieldError(place, expectation(detail["msg"]), got, fix)
        case {"type": "less_than" | "less_than_equal"}:
            return FieldError(place, expectation(detail["msg"]), got, "lower it")
        case {"type": "greater_than" | "greater_than_equal"}:
            return FieldError(place, expectation(detail["msg"]), got, "raise it")
        case {"type": "too_short", "ctx": {"min_length": least}}:
            return FieldError(place, f"at least {least} {'entry' if least == 1 else 'entries'}", got, change)
        case {"type": "too_long", "ctx": {"max_length": most}}:
            return FieldError(place, f"at most {most} {'entry' if most == 1 else 'entries'}", got, change)
        case {"type": "string_pattern_mismatch", "ctx": {"pattern": pattern}}:
            return FieldError(place, f"text of the form {pattern}", got, change)
        case {"type": kind} if kind in _EXPECTED:
            return _of_type(place, _EXPECTED[kind], detail["input"], inner)
        case _:
            return FieldError(place, expectation(detail["msg"]), got, change)


def _of_choice(place: str, choices: str, word: object, got: str) -> FieldError:
    if choices == "True":
        return FieldError(place, "true", got, "remove it or write true")
    meant = nearest(word, re.findall("'([^']*)'", choices)) if isinstance(word, str) else ""
    return FieldError(place, f"one of {choices}", got, write_one(meant), meant)


def write_one(meant: str) -> str:
    """Return how to repair a word that is not among the ones that exist; `meant` as in `FieldError`."""
    return f"write {meant}" if meant else "write one of them"


def _of_type(place: str, expected: str, got: object, inner: type[BaseModel] | None) -> FieldError:
    """Return the error of a value of the wrong type. `inner` is the class of the mapping that is expected."""
    fields = inner.model_fields if inner else {}
    filled_in = _FILLED_IN if fields.keys() >= _FILLED_IN else ()
    keys = [name for name, field in fields.items() if field.is_required() and name not in filled_in]
    fix = repair(expected, place.rpartition(".")[2], got, keys)
    example = f"write {expected}, {_EXAMPLES[expected]}" if expected in _EXAMPLES else ""
    return FieldError(place, expected, show(got), fix or example or f"change {place} in the stack file")


def _join(*keys: str) -> str:
    return ".".join(filter(None, keys))


def expectation(message: str) -> str:
    """Return pydantic's message without the words that every error of a stack file has anyway."""
    for words in _PYDANTIC_PREFIXES:
        message = message.removeprefix(words)
    return message


def _follow(
    model: type[BaseModel], location: Iterable[str | int]
) -> tuple[list[str], Iterable[str], type[BaseModel] | None]:
    """Return the keys of the file that lead to a location, the keys that exist next to the last one, and the class of
    its value if that is a mapping of only one class.

    Pydantic's location has two parts that are not in the file: the chosen kind of a discriminated union, and a mark
    after a key that is itself wrong.
    """
    keys: list[str] = []
    models: list[type[BaseModel]] = [model]
    known: Iterable[str] = model.model_fields
    is_by_name = False
    for part in map(str, location):
        if part == _KEY_MARK:
            continue
        if is_by_name:
            keys.append(part)
            known, is_by_name = models[0].model_fields, False
            continue
        if len(models) > 1:
            models = [candidate for candidate in models if part in _tags(candidate)]
            known = models[0].model_fields if models else ()
            continue
        keys.append(part)
        known = models[0].model_fields if models else ()
        annotation = models[0].model_fields[part].annotation if part in known else None
        models = _models(annotation)
        is_by_name = bool(models) and get_origin(annotation) is Mapping
    return keys, known, models[0] if len(models) == 1 and not is_by_name else None


def _models(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _tags(model: type[BaseModel]) -> list[object]:
    return [tag for field in model.model_fields.values() for tag in get_args(field.annotation)]


def refuse(errors: Iterable[FieldError]) -> None:
    """Raise SettingsError with all errors, if there are any."""
    if found := list(dict.fromkeys(errors)):
        raise SettingsError(found)


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

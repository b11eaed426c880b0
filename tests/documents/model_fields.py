"""Renders a table row for each field of a pydantic model: setting, type, default and meaning."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.stack.settings.values import Hidden

COLUMNS = "| Setting | Type | Default | Meaning |\n|---|---|---|---|\n"


def table(name: str, field: FieldInfo, meaning: str) -> str:
    """Return the rows of one field and of all fields below it."""
    return "".join(f"| {' | '.join(row)} |\n" for row in _rows(name, field, meaning))


def _rows(path: str, field: FieldInfo, meaning: str) -> Iterator[tuple[str, str, str, str]]:
    found = models(field.annotation)
    inner = f"{path}.NAME" if _is_mapping(field.annotation) else path
    if not found or meaning:
        yield f"`{path}`", _kind(field.annotation), _default(field), one_line(meaning)
    shared = _shared(found)
    for name, each in shared.items():
        yield from _rows(f"{inner}.{name}", each, meanings(found[0]).get(name, ""))
    for model in found:
        fields = {name: each for name, each in model.model_fields.items() if name not in shared}
        if len(found) > 1:
            discriminator = next(name for name, each in fields.items() if _is_one_word(each.annotation))
            (kind,) = get_args(fields.pop(discriminator).annotation)
            yield f"`{inner}.{discriminator}`", f"`{kind}`", "", one_line(model.__doc__)
        for name, each in fields.items():
            yield from _rows(f"{inner}.{name}", each, meanings(model).get(name, ""))


def _is_one_word(annotation: Any) -> bool:
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


def _shared(kinds: list[type[BaseModel]]) -> dict[str, FieldInfo]:
    """Return the fields that several models inherit from a common class."""
    return {name: field for base in _bases(kinds) for name, field in base.model_fields.items()}


def _bases(kinds: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """Return the common base classes of several models, or nothing for a single model."""
    if len(kinds) < 2:
        return []
    first, *others = (set(model.__mro__) for model in kinds)
    common = [base for base in first.intersection(*others) if issubclass(base, BaseModel)]
    return [base for base in common if base.model_fields]


def about(kinds: list[type[BaseModel]]) -> str:
    """Return the docstring of a section's class, or of the common class of several kinds."""
    return "".join(f"{one_line(model.__doc__)}\n\n" for model in _bases(kinds) or kinds)


def one_line(text: str | None) -> str:
    """Return a docstring as the text of a table cell."""
    return " ".join((text or "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.default
    return "" if default is None or isinstance(default, BaseModel | Mapping | tuple) else f"`{_written(default)}`"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(annotation: Any) -> str:
    if models(annotation):
        return "map of mappings" if _is_mapping(annotation) else "mapping"
    parts = [part for part in _leaves(annotation) if part is not type(None)]
    words = {str: "string", int: "integer", float: "number", bool: "boolean", date: "date"}
    if _is_mapping(annotation):
        values = {str: "strings", int: "integers", float: "numbers", object: "values", Hidden: "Pulumi secrets"}
        return f"map of {values[parts[1]] if len(parts) == 2 else 'values'}"
    if get_origin(_plain(annotation)) is tuple:
        (kind, *_) = [part for part in parts if part is not Ellipsis]
        return "list of integers" if kind is int else "list of strings"
    shown = [f"`{_written(part)}`" if not isinstance(part, type) else words[part] for part in parts]
    return ", ".join(dict.fromkeys(shown))


def _is_mapping(annotation: Any) -> bool:
    found = _plain(annotation)
    return get_origin(found) is Mapping


def _plain(annotation: Any) -> Any:
    if isinstance(annotation, TypeAliasType):
        return _plain(annotation.__value__)
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (first, *_) = [part for part in get_args(annotation) if part is not type(None)]
        return _plain(first)
    return annotation


def _leaves(annotation: Any) -> list[Any]:
    if isinstance(annotation, TypeAliasType):
        return _leaves(annotation.__value__)
    if get_origin(annotation) is Annotated:
        return _leaves(get_args(annotation)[0])
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    arguments = [part for part in get_args(annotation) if part is not Ellipsis]
    return [leaf for part in arguments for leaf in _leaves(part)] if arguments else [annotation]


def models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in the type of a field."""
    found = [leaf for leaf in _leaves(annotation) if isinstance(leaf, type) and issubclass(leaf, BaseModel)]
    return list(dict.fromkeys(found))


@cache
def meanings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field, including those of base classes."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            texts |= _texts_below(base)
    return texts


def _texts_below(kind: type) -> dict[str, str]:
    (parsed,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(parsed, ast.ClassDef)
    return texts_below(parsed.body)


def texts_below(body: list[ast.stmt]) -> dict[str, str]:
    """Return the docstring below each assignment to a name."""
    found: dict[str, str] = {}
    for assignment, text in zip(body, body[1:], strict=False):
        match assignment, text:
            case (
                (ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)])),
                ast.Expr(value=ast.Constant(value=str(words))),
            ):
                found[name] = inspect.cleandoc(words)
            case _:
                pass
    return found

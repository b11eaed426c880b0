"""The reference of the stack file, made from the classes that read it."""

import ast
import inspect
from collections.abc import Iterator, Mapping
from datetime import date
from functools import cache
from types import UnionType
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.hidden import Hidden
from infra.stack_file import Options, Settings

_HEAD = """# The stack file

Every setting of the files in `stacks/`, below `config` as `tpu-multislice:SECTION`. `NAME` stands
for a name of your choice. A fault in any of them is told before a provider is asked for anything.
"""
_COLUMNS = "| setting | what it may be | if it is not there | meaning |\n|---|---|---|---|\n"


def reference() -> str:
    """The whole text, a table for each section."""
    parts = [_HEAD]
    for name, field in Settings.model_fields.items():
        if name not in Options.model_fields:
            parts.append(f"\n## {name}\n\n{_said(_models(field.annotation))}{_COLUMNS}{_table(name, field)}")
    parts.append(f"\n## Of the whole stack\n\n{_COLUMNS}")
    parts += [_table(name, field) for name, field in Options.model_fields.items()]
    return "".join(parts)


def _table(name: str, field: FieldInfo) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in _rows(name, field, _meanings(Settings).get(name, "")))


def _rows(path: str, field: FieldInfo, meaning: str) -> Iterator[tuple[str, str, str, str]]:
    models = _models(field.annotation)
    inner = f"{path}.NAME" if _is_mapping(field.annotation) else path
    if not models or meaning:
        yield f"`{path}`", _kind(field.annotation), _default(field), _one_line(meaning)
    shared = _shared(models)
    for name, each in shared.items():
        yield from _rows(f"{inner}.{name}", each, _meanings(models[0]).get(name, ""))
    for model in models:
        fields = {name: each for name, each in model.model_fields.items() if name not in shared}
        if len(models) > 1:
            told_apart_by = next(name for name, each in fields.items() if get_origin(each.annotation) is Literal)
            (kind,) = get_args(fields.pop(told_apart_by).annotation)
            yield f"`{inner}.{told_apart_by}`", f"`{kind}`", "", _one_line(model.__doc__)
        for name, each in fields.items():
            yield from _rows(f"{inner}.{name}", each, _meanings(model).get(name, ""))


def _shared(models: list[type[BaseModel]]) -> dict[str, FieldInfo]:
    """The fields that several kinds of one thing have from the class of that thing."""
    return {name: field for base in _bases(models) for name, field in base.model_fields.items()}


def _bases(models: list[type[BaseModel]]) -> list[type[BaseModel]]:
    """What several kinds of one thing have in common; nothing of a single one."""
    if len(models) < 2:
        return []
    first, *others = (set(model.__mro__) for model in models)
    common = [base for base in first.intersection(*others) if issubclass(base, BaseModel)]
    return [base for base in common if base.model_fields]


def _said(models: list[type[BaseModel]]) -> str:
    return "".join(f"{_one_line(model.__doc__)}\n\n" for model in _bases(models) or models)


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "must be there"
    default = field.default
    return "" if default is None or isinstance(default, BaseModel | Mapping | tuple) else f"`{_written(default)}`"


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(annotation: Any) -> str:
    models = _models(annotation)
    if models:
        return "a mapping by name" if _is_mapping(annotation) else "a mapping"
    parts = [part for part in _leaves(annotation) if part is not type(None)]
    words = {str: "text", int: "a whole number", float: "a number", bool: "true or false", date: "a date"}
    if _is_mapping(annotation):
        values = {str: "texts", int: "whole numbers", float: "numbers", object: "values", Hidden: "Pulumi secrets"}
        return f"{values[parts[1]]} by name"
    if get_origin(_plain(annotation)) is tuple:
        return "a list of texts"
    told = [f"`{_written(part)}`" if not isinstance(part, type) else words[part] for part in parts]
    return ", ".join(dict.fromkeys(told))


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


def _models(annotation: Any) -> list[type[BaseModel]]:
    found = [leaf for leaf in _leaves(annotation) if isinstance(leaf, type) and issubclass(leaf, BaseModel)]
    return list(dict.fromkeys(found))


@cache
def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring below each field, base classes included."""
    texts: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if not issubclass(base, BaseModel) or base is BaseModel:
            continue
        (parsed,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(parsed, ast.ClassDef)
        for field, text in zip(parsed.body, parsed.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                    texts[name] = words
                case _:
                    pass
    return texts

"""The JSON Schema of a stack file, made from the classes that read it, for editors that complete and check files."""

import json
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, models_json_schema

from infra.stack.settings.jobs import SWEEP_KEY, ContainerJob, TrainingJob
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.sections import JOBS, SHORT_FORM
from infra.stack.settings.stack import Settings
from infra.stack.settings.starter import Starter
from infra.stack.settings.values import NAMESPACE, SECRETS
from infra.stack.tpu import all_shapes, generation_names, generations
from tests.documents.model_fields import meanings, models, one_line
from workloads.spec import preset_names

type Json = dict[str, Any]

_BY_DEFAULT = ("name", "team")
"""Required values of a job that the stack file need not have."""
_NAMED_KINDS = (TrainingJob, ContainerJob)
_TYPE: Json = {"pattern": "^(v\\d|tpu)[a-z0-9]*-\\d+$"}
"""Cloud TPU's name of a slice, such as v6e-16."""
_SECRETS: Json = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["secure"],
        "properties": {"secure": {"type": "string"}},
        "additionalProperties": False,
    },
}


class _Schema(GenerateJsonSchema):
    """A schema without titles, which repeat the names, and without order-dependent names of definitions."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def is_instance_schema(self, schema: Any) -> Json:
        return {}


def schema() -> str:
    """The whole schema, as the file that is committed."""
    _, generated = models_json_schema([(Settings, "validation"), (Starter, "validation")], schema_generator=_Schema)
    definitions: Json = {name: _without_title(each) for name, each in generated["$defs"].items()}
    sections: Json = definitions.pop(Settings.__name__)["properties"]
    for model in _models(Settings, set()):
        if model.__name__ in definitions:
            _describe(definitions[model.__name__], model)
    _describe({"properties": sections}, Settings)
    definitions[SliceGroup.__name__]["properties"]["generation"]["enum"] = _generations()
    definitions[TrainingJob.__name__]["properties"]["preset"]["enum"] = preset_names()
    definitions[SliceGroup.__name__]["allOf"] = [_topologies(generation) for generation in generation_names()]
    for kind in _NAMED_KINDS:
        definitions[f"Named{kind.__name__}"] = _named(definitions[kind.__name__])
    named = [{"$ref": f"#/$defs/Named{kind.__name__}"} for kind in _NAMED_KINDS]
    container: Json = {"required": ["kind"], "properties": {"kind": {"const": "container"}}}
    sections[JOBS] |= {"additionalProperties": {"if": container, "then": named[1], "else": named[0]}}
    only = definitions[TrainingJob.__name__]
    only["required"] = [name for name in only["required"] if name not in _BY_DEFAULT]
    del only["properties"][SWEEP_KEY], definitions[ContainerJob.__name__]
    starter = definitions.pop(Starter.__name__)
    _describe(starter, Starter)
    starter["properties"]["generation"]["enum"] = _generations()
    sections |= starter["properties"]
    sections[SHORT_FORM] = {"$ref": f"#/$defs/{TrainingJob.__name__}"}
    sections[SECRETS] |= _SECRETS
    whole: Json = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of tpu-multislice",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                # Other packages have keys of their own.
                "properties": {f"{NAMESPACE}:{name}": each for name, each in sections.items()},
            }
        },
    }
    return f'{{\n{_lines(whole)},\n"$defs": {{\n{_lines(definitions)}\n}}\n}}\n'


def _lines(entries: Json) -> str:
    """The entries of an object, one on each line, so that a change shows which one it is."""
    return ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in entries.items())


def _topologies(generation: str) -> Json:
    """The topologies that GKE offers of a generation."""
    offered = dict.fromkeys(shape.topology for shape in all_shapes() if shape.generation == generation)
    return {
        "if": {"properties": {"generation": {"const": generation}}},
        "then": {"properties": {"topology": {"anyOf": [{"enum": list(offered)}, _TYPE]}}},
    }


def _generations() -> list[str]:
    """The names of generations, also those that Google uses elsewhere."""
    return [name for each in generations() for name in (each.name, *each.other_names)]


def _without_title(definition: Json) -> Json:
    return {key: value for key, value in definition.items() if key != "title"}


def _named(job: Json) -> Json:
    """The schema of a job below `jobs`, whose name is its key."""
    properties = {name: each for name, each in job["properties"].items() if name != "name"}
    required = [name for name in job["required"] if name not in _BY_DEFAULT]
    return job | {"properties": properties, "required": required}


def _describe(definition: Json, model: type[BaseModel]) -> None:
    """Add the docstrings of the fields, which the schema does not have."""
    bases = [base for base in reversed(model.__mro__) if issubclass(base, BaseModel)]
    said = {name: text for base in bases for name, text in meanings(base).items()}
    for name, field in definition["properties"].items():
        if name in said:
            field["description"] = one_line(said[name])


def _models(model: type[BaseModel], found: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    """Yield the model and all that its fields lead to."""
    found.add(model)
    yield model
    for field in model.model_fields.values():
        for each in models(field.annotation):
            if each not in found:
                yield from _models(each, found)

"""The kinds of Managed Prometheus take what the program declares, and nothing that it misspells."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import yaml

from sandbox.programs import GKE_KINDS, copied_path
from tests.infra.recording import Recording, Values, run_program, stack_values

_TYPES: Mapping[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}


def faults(schema: Any, value: Any, path: str = "") -> Iterator[str]:
    """As the API server has them for a structural schema, where fields that it does not know are refused."""
    if "type" in schema and not isinstance(value, _TYPES[schema["type"]]):
        yield f"{path} is no {schema['type']}"
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{path} is none of {schema['enum']}"
    elif isinstance(value, dict):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        yield from (f"{path} has no {name}" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            if name in properties or others:
                yield from faults(properties.get(name, others), item, f"{path}.{name}")
            else:
                yield f"{path}.{name} is not known"
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from faults(schema["items"], item, f"{path}[{index}]")


@pytest.fixture(scope="module")
def dev() -> Recording:
    return run_program(stack_values("dev"))


@pytest.fixture(scope="module")
def schemas() -> Mapping[str, Any]:
    """Of the newest version, by kind."""
    files = [path for copy in GKE_KINDS for path in copied_path(copy).glob("monitoring.googleapis.com_*.yaml")]
    kinds = [yaml.load(path.read_text(), yaml.CSafeLoader)["spec"] for path in files]
    return {kind["names"]["kind"]: kind["versions"][0]["schema"]["openAPIV3Schema"] for kind in kinds}


@pytest.mark.parametrize("kind", ["PodMonitoring", "ClusterRules"])
def test_what_the_program_declares_has_no_fault(kind: str, dev: Recording, schemas: Mapping[str, Any]) -> None:
    declared = dev.of_type(f"kubernetes:monitoring.googleapis.com/v1:{kind}")
    assert declared
    spec = schemas[kind]["properties"]["spec"]
    assert [fault for found in declared for fault in faults(spec, found.inputs["spec"])] == []


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"selektor": {}}, ".selektor is not known"),
        ({"endpoints": "metrics"}, ".endpoints is no array"),
        ({"endpoints": [{"interval": "30s"}]}, ".endpoints[0] has no port"),
        ({"targetLabels": {"metadata": ["zone"]}}, ".targetLabels.metadata[0] is none of"),
    ],
)
def test_what_is_misspelt_would_be_found(
    changed: Values, fault: str, dev: Recording, schemas: Mapping[str, Any]
) -> None:
    (declared,) = (
        found
        for found in dev.of_type("kubernetes:monitoring.googleapis.com/v1:PodMonitoring")
        if found.inputs["metadata"]["name"] == "trainer"
    )
    schema = schemas["PodMonitoring"]["properties"]["spec"]
    (found,) = faults(schema, declared.inputs["spec"] | changed)
    assert found.startswith(fault)

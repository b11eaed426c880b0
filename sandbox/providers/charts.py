"""Helm charts as components: renders a chart and registers each object as a child.

The chart is the sandbox's own copy with that name and version, whatever repository the program names. Other versions
are refused. Like the published provider, this drops hooks and orders only objects that need an order.
"""

import asyncio
import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pulumi
import yaml
from pulumi.provider.experimental.property_value import PropertyValue, ResourceReference
from pulumi.provider.experimental.provider import ConstructRequest, ConstructResponse

from infra.cluster.kubernetes import Json
from sandbox.programs import Programs, ProgramsError
from sandbox.providers.plugin import Refusal
from sandbox.providers.values import has_unknown, plain_object, reveal

CHART = "kubernetes:helm.sh/v4:Chart"

type Transform = Callable[[pulumi.ResourceTransformArgs], pulumi.ResourceTransformResult | None]

_WAVES = (
    ("Namespace", "CustomResourceDefinition"),
    (),
    # Workloads start when everything that they mount exists. Webhook configurations come with them, because a program
    # that waits for the CA bundle waits for what the workload writes.
    ("Deployment", "StatefulSet", "DaemonSet", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
)
NOT_SERVED = ("APIService",)
"""Kinds to omit: the API server cannot reach an aggregated API without a pod network, and an APIService that does not
answer would block the deletion of every namespace."""


async def construct(request: ConstructRequest, programs: Programs, version: str) -> ConstructResponse:
    """Return the component of a chart, without children while an input is unknown."""
    # Dependencies, which the engine already knows, would make the SDK wrap each value.
    values = {key: value.with_dependencies(()) for key, value in request.inputs.items()}
    inputs = reveal(plain_object(PropertyValue.marshal_map(values)))
    component = pulumi.ComponentResource(CHART, request.name, {}, request.options)
    manifests = [] if has_unknown(inputs) else await asyncio.to_thread(render, inputs, request.name, programs)
    prefix = inputs.get("resourcePrefix", request.name)
    resources = await _register(manifests, prefix, component, version)
    urn = await component.urn.future()
    references = [PropertyValue(ResourceReference(urn, None)) for urn in resources]
    return ConstructResponse(str(urn), {"resources": PropertyValue(references)}, {})


def render(inputs: Json, default_name: str, programs: Programs) -> list[Json]:
    """Return the objects of the chart with the program's values, without hooks.

    Raises Refusal if the sandbox has no such chart or version, or Helm refuses the values.
    """
    name = str(inputs["chart"]).partition("@")[0].rstrip("/").rpartition("/")[2]
    try:
        folder = programs.operator(name, inputs.get("version")).chart
    except ProgramsError as error:
        raise Refusal(str(error)) from None
    with tempfile.TemporaryDirectory() as scratch:
        values = Path(scratch) / "values.json"
        values.write_text(json.dumps(inputs.get("values", {})))
        arguments = ["template", inputs.get("name", default_name), str(folder), "--values", str(values)]
        arguments += ["--namespace", inputs.get("namespace", "default")]
        arguments += [] if inputs.get("skipCrds") else ["--include-crds"]
        command = [str(programs.path("helm")), *arguments]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise Refusal(f"chart {name}: {result.stderr.strip()}")
    documents: list[Json] = [document for document in yaml.load_all(result.stdout, yaml.CSafeLoader) if document]
    kept = [document for document in documents if document["kind"] not in NOT_SERVED]
    return [_without_prose(each) for each in kept if "helm.sh/hook" not in (each["metadata"].get("annotations") or {})]


def type_token(manifest: Json) -> str:
    """Pulumi's type of a Kubernetes object, such as `kubernetes:apps/v1:Deployment`."""
    api_version = str(manifest["apiVersion"])
    return f"kubernetes:{api_version if '/' in api_version else f'core/{api_version}'}:{manifest['kind']}"


async def _register(manifests: list[Json], prefix: str, parent: pulumi.ComponentResource, version: str) -> list[str]:
    waves: list[list[pulumi.Resource]] = [[] for _ in _WAVES]
    for manifest in sorted(manifests, key=_wave):
        wave, metadata = _wave(manifest), manifest["metadata"]
        before = [resource for earlier in waves[:wave] for resource in earlier]
        options = pulumi.ResourceOptions(parent=parent, depends_on=before, version=version)
        name = f"{prefix}:{'/'.join(metadata[key] for key in ('namespace', 'name') if key in metadata)}"
        waves[wave].append(pulumi.CustomResource(type_token(manifest), name, manifest, options))
    return [str(await child.urn.future()) for wave in waves for child in wave]


def _wave(manifest: Json) -> int:
    return next((index for index, kinds in enumerate(_WAVES) if manifest["kind"] in kinds), 1)


def _without_prose(manifest: Json) -> Json:
    """Return a CustomResourceDefinition without the descriptions in its schemas; other objects unchanged.

    The descriptions would be three quarters of what the engine writes at every step.
    """
    if manifest["kind"] != "CustomResourceDefinition":
        return manifest

    def stripped(value: Any) -> Any:
        if isinstance(value, list):
            return [stripped(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {key: stripped(item) for key, item in value.items() if key != "description" or not isinstance(item, str)}

    return stripped(manifest)


def local_charts(programs: Programs, folder: Path) -> Transform:
    """Return a transform for the published plugin that replaces each chart of the program by the sandbox's, copied to
    `folder`."""

    def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
        inputs = cast("dict[str, Any]", args.props)
        # The plugin registers the component a second time, without inputs, when it starts to create it.
        if args.type_ != CHART or "chart" not in inputs:
            return None
        name = str(inputs["chart"]).rpartition("/")[2]
        chart = programs.operator(name, inputs.get("version")).chart
        copy = folder / chart.parent.parent.name / name
        if not copy.is_dir():
            shutil.copytree(chart, copy, ignore=_find_unserved)
        return pulumi.ResourceTransformResult({**inputs, "chart": str(copy)}, args.opts)

    return transform


def _find_unserved(folder: str, names: list[str]) -> list[str]:
    paths = [path for name in names if (path := Path(folder) / name).suffix == ".yaml"]
    return [path.name for path in paths if any(f"kind: {kind}\n" in path.read_text() for kind in NOT_SERVED)]

"""Kubernetes objects as a program writes them, as the API server keeps them, and as the engine remembers them.

Owns the ways between these, and which changes an object cannot take in place. Pure: asking the API server is the
business of `sandbox.providers.kubernetes`.
"""

import base64

from sandbox.providers.plugin import Resource, type_of
from sandbox.providers.values import UNKNOWN, Object, Secret, conceal, merged, reveal

SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")
"""Fields of `metadata` that the API server writes."""

_IDENTITY = ("kind", "metadata.name", "metadata.namespace")

_IMMUTABLE = {
    "ConfigMap": ("data", "binaryData"),
    "Secret": ("data", "type"),
    "Deployment": ("spec.selector",),
    "Job": ("spec.selector", "spec.template", "spec.completionMode"),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
}
"""Paths whose change needs a new object. Only built-in kinds: of others the published provider knows none."""

_MUTABLE = {"ConfigMap": ("enableConfigMapMutable", ()), "Secret": ("enableSecretMutable", ("type",))}
"""Kinds that the provider changes in place where that option is set, but for these paths."""


def fixed_paths(kind: str, options: Object) -> tuple[str, ...]:
    """Paths whose change needs a new object; `options` are those of the provider."""
    option, fixed_still = _MUTABLE.get(kind, ("", ()))
    mutable = options.get(option) in (True, "true")
    return (*_IDENTITY, *(fixed_still if mutable else _IMMUTABLE.get(kind, ())))


def key(manifest: Object) -> tuple[str | None, str]:
    """Namespace, if it has one, and name."""
    metadata = manifest["metadata"]
    return metadata.get("namespace"), metadata["name"]


def of(resource: Resource) -> Object:
    """The inputs, or what id and type say of an object that is being imported."""
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return merged({**type_fields(resource.urn), "metadata": metadata}, resource.inputs)


def type_fields(urn: str) -> Object:
    """`apiVersion` and `kind` of the resource's type."""
    _, api_version, kind = type_of(urn).split(":")
    return {"apiVersion": api_version.removeprefix("core/"), "kind": kind}


def with_secrets(manifest: Object) -> Object:
    """A Secret with its content concealed, and written as the API server keeps it."""
    if manifest["kind"] != "Secret" or not manifest.keys() & {"data", "stringData"}:
        return manifest
    texts = reveal(manifest.get("stringData", {}))
    encoded = {
        name: text if text == UNKNOWN else base64.b64encode(text.encode()).decode() for name, text in texts.items()
    }
    data = reveal(manifest.get("data", {})) | encoded
    return {name: item for name, item in manifest.items() if name != "stringData"} | {"data": Secret(data)}


def state(live: Object, inputs: Object) -> Object:
    """What the engine keeps: the object less the API server's bookkeeping."""
    # The engine writes its whole state at every step: the schemas of Kueue's kinds once are enough.
    left_out = ("spec",) if live["kind"] == "CustomResourceDefinition" else ()
    metadata = {name: item for name, item in live["metadata"].items() if name != "managedFields"}
    kept = {name: item for name, item in live.items() if name not in left_out}
    return conceal(with_secrets({**kept, "metadata": metadata}), inputs)


def as_written(live: Object) -> Object:
    """An object that no program has written yet as if one had."""
    metadata = {name: item for name, item in live["metadata"].items() if name not in SERVER_METADATA}
    return {**{name: item for name, item in live.items() if name != "status"}, "metadata": metadata}


def still_there(live: Object | None, state: Object) -> str:
    """What keeps the object that is to go; empty when it is gone, or another one has its name."""
    if live is None or live["metadata"]["uid"] != state["metadata"]["uid"]:
        return ""
    finalizers = live["metadata"].get("finalizers") or []
    held = f"held by finalizers {', '.join(finalizers)}" if finalizers else "still being deleted"
    return f"{live['kind']} {live['metadata']['name']} is {held}"

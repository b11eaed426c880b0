"""Kubernetes objects: as a program writes them and the API server keeps them, their field managers, their readiness.

Pure: `sandbox.providers.kubernetes` calls the API server.
"""

import base64
import json
import re
import secrets
import time
from collections.abc import Callable, Iterator
from functools import reduce
from typing import Any

from sandbox.providers.plugin import Refusal, Resource, type_of
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


CREATOR = "pulumi-kubernetes"
"""Field manager of every create."""

_STATE_KEY = "__fieldManager"
_PATCH_FORCE = "pulumi.com/patchForce"
_CREATORS = (CREATOR, "pulumi-kubernetes.exe", "pulumi-resource-kubernetes")
_TAKEN_OVER = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    *((creator, "Update") for creator in _CREATORS),
)
"""Beginnings of names, and operations, of the managers that lose their fields to the object's own."""


def manager_of(state: Object) -> str:
    """The manager that the state names; a new one where it names none."""
    return state.get(_STATE_KEY) or f"{CREATOR}-{secrets.token_hex(4)}"


def remembered(state: Object, manager: str) -> Object:
    """The state with the name of the object's own manager."""
    return {**state, _STATE_KEY: manager}


def taken_over(live: Object, manager: str) -> list[Object] | None:
    """The managed fields of `live` once `manager` has what is its due; None when it has all of it."""
    entries: list[Object] = live["metadata"].get("managedFields") or []
    taken = [entry for entry in entries if _is_taken_over(entry)]
    if not taken:
        return None
    own = [entry for entry in entries if (entry["manager"], entry["operation"]) == (manager, "Apply")]
    fields = reduce(merged, [entry["fieldsV1"] for entry in (*own, *taken)])
    applied = {**(own or taken)[0], "manager": manager, "operation": "Apply", "fieldsV1": fields}
    return [*(entry for entry in entries if entry not in own and entry not in taken), applied]


def forced(inputs: Object, live: Object, *, preview: bool) -> bool:
    """Whether an update takes fields from whoever owns them, instead of ending in a conflict.

    A preview, which takes over nothing, does so where an update would have taken over from the creator.
    """
    entries: list[Object] = live["metadata"].get("managedFields") or []
    created = any(entry["operation"] == "Update" and entry["manager"] in _CREATORS for entry in entries)
    asked = (inputs["metadata"].get("annotations") or {}).get(_PATCH_FORCE) == "true"
    return asked or not entries or (preview and created)


def _is_taken_over(entry: Object) -> bool:
    of_object = not entry.get("subresource")
    return of_object and any(
        entry["manager"].startswith(name) and entry["operation"] == operation for name, operation in _TAKEN_OVER
    )


WAIT_FOR = "pulumi.com/waitFor"
SKIP_AWAIT = "pulumi.com/skipAwait"
TIMEOUT_SECONDS = "pulumi.com/timeoutSeconds"

DEFAULT_TIMEOUT_SECONDS = 600.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 1.0

type Unmet = Callable[[Object], str]
"""Says what an object still lacks; empty when it is ready."""


class WaitTimeoutError(Refusal):
    """An object did not become what was awaited in time."""


def requirement(inputs: Object) -> Unmet | None:
    """What the object must become before its creation counts as done; None when nothing."""
    annotations = annotations_of(inputs)
    if annotations.get(SKIP_AWAIT) == "true":
        return None
    if WAIT_FOR not in annotations:
        return _BUILT_IN.get(inputs["kind"])
    text = annotations[WAIT_FOR]
    checks = [_expression(item) for item in (json.loads(text) if text.startswith("[") else [text])]

    def unmet(live: Object) -> str:
        return _generation_unmet(live) or "; ".join(filter(None, (check(live) for check in checks)))

    return unmet


def timeout_of(inputs: Object, requested_seconds: float) -> float:
    """The resource option wins over the annotation, as in the published provider."""
    return requested_seconds or float(annotations_of(inputs).get(TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS))


def annotations_of(manifest: Object) -> dict[str, str]:
    """The annotations of an object, empty when it has none."""
    return manifest.get("metadata", {}).get("annotations") or {}


def poll(unmet: Callable[[], str], timeout_seconds: float) -> None:
    """Block until `unmet` says nothing.

    Raises:
        WaitTimeoutError: it still says something after `timeout_seconds`.
    """
    deadline, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
    while lack := unmet():
        if time.monotonic() > deadline:
            raise WaitTimeoutError(f"timed out after {timeout_seconds:g} s: {lack}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)


def select(path: str, value: Any) -> list[Any]:
    """The values at a JSONPath of names, `[0]`, `[*]` and `['a.b']`.

    Raises:
        Refusal: the path has something else in it.
    """
    values: list[Any] = [value]
    for step in _steps(path):
        values = [item for found in values for item in _stepped(found, step)]
    return values


_STEP = re.compile(
    r"""\.(?P<name>[\w-]+)|\[(?P<index>-?\d+)\]|(?P<all>\[\*\])|\[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]"""
)


def _steps(path: str) -> Iterator[re.Match[str]]:
    text, position = path.strip().removeprefix("{").removesuffix("}").removeprefix("$"), 0
    while position < len(text):
        step = _STEP.match(text, position)
        if step is None:
            raise Refusal(f"{WAIT_FOR}: {path!r} has a step the sandbox does not know, {text[position:]!r}")
        yield step
        position = step.end()


def _stepped(value: Any, step: re.Match[str]) -> list[Any]:
    if isinstance(value, dict):
        key = step["name"] or step["key"]
        return list(value.values()) if step["all"] else [value[key]] if key in value else []
    if not isinstance(value, list):
        return []
    if step["all"]:
        return value
    index = int(step["index"] or len(value))
    return [value[index]] if -len(value) <= index < len(value) else []


def _expression(text: str) -> Unmet:
    form, _, rest = text.partition("=")
    if form == "condition":
        kind, _, status = rest.partition("=")
        return lambda live: _condition_unmet(live, kind, status or "True")
    if form == "jsonpath":
        path, brace, wanted = rest.partition("}")
        return lambda live: _path_unmet(live, path + brace, wanted.removeprefix("="))
    raise Refusal(f"{WAIT_FOR}: expected `condition=TYPE[=STATUS]` or `jsonpath={{PATH}}[=VALUE]`, got {text!r}")


def _path_unmet(live: Object, path: str, wanted: str) -> str:
    found = [item for item in select(path, live) if item not in (None, "")]
    if not found:
        return f"{path} has no value"
    texts = [item if isinstance(item, str) else json.dumps(item) for item in found]
    return f"{path} is {', '.join(texts)}, not {wanted}" if wanted and wanted not in texts else ""


def _condition_unmet(live: Object, kind: str, status: str) -> str:
    for condition in live.get("status", {}).get("conditions") or []:
        if condition["type"].lower() == kind.lower():
            told = f": {condition.get('message', '')}".rstrip(": ")
            return "" if condition["status"].lower() == status.lower() else f"{kind} is {condition['status']}{told}"
    return f"no condition {kind} yet"


def _generation_unmet(live: Object) -> str:
    observed = live.get("status", {}).get("observedGeneration")
    if observed is None or observed >= live["metadata"].get("generation", 0):
        return ""
    return "its controller has not seen the newest generation"


def _deployment_unmet(live: Object) -> str:
    wanted, status = live["spec"].get("replicas", 1), live.get("status", {})
    if "observedGeneration" not in status:
        return "its controller has not seen it"
    ready = status.get("availableReplicas", 0)
    return _generation_unmet(live) or ("" if ready >= wanted else f"{ready} of {wanted} replicas are available")


def _namespace_unmet(live: Object) -> str:
    phase = live.get("status", {}).get("phase", "unset")
    return "" if phase == "Active" else f"phase is {phase}"


_BUILT_IN: dict[str, Unmet] = {
    "Deployment": _deployment_unmet,
    "Namespace": _namespace_unmet,
    "CustomResourceDefinition": lambda live: _condition_unmet(live, "Established", "True"),
}

"""Kubernetes objects as a program writes them and as the API server stores them; field managers and readiness.

Pure: `sandbox.providers.kubernetes` calls the API server.
"""

import base64
import re
import secrets
import time
from collections.abc import Callable
from functools import reduce
from typing import Any

from infra.cluster.kubernetes import Json
from sandbox.providers.plugin import Refusal, Resource, type_of
from sandbox.providers.values import UNKNOWN, Secret, conceal, merge, reveal

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
"""Paths whose change needs a new object. Only built-in kinds, as in the published provider."""

_MUTABLE = {"ConfigMap": ("enableConfigMapMutable", ()), "Secret": ("enableSecretMutable", ("type",))}
"""Kinds that the provider changes in place when that option is set, except for these paths."""


def fixed_paths(kind: str, options: Json) -> tuple[str, ...]:
    """Return the paths whose change needs a new object; `options` are the provider's configuration."""
    option, fixed_still = _MUTABLE.get(kind, ("", ()))
    mutable = options.get(option) in (True, "true")
    return (*_IDENTITY, *(fixed_still if mutable else _IMMUTABLE.get(kind, ())))


def key(manifest: Json) -> tuple[str | None, str]:
    """Return the namespace, if it has one, and name."""
    metadata = manifest["metadata"]
    return metadata.get("namespace"), metadata["name"]


def of(resource: Resource) -> Json:
    """Return the inputs, or for an object that is being imported what follows from its id and type."""
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return merge({**type_fields(resource.urn), "metadata": metadata}, resource.inputs)


def type_fields(urn: str) -> Json:
    """Return `apiVersion` and `kind` of the resource's type."""
    _, api_version, kind = type_of(urn).split(":")
    return {"apiVersion": api_version.removeprefix("core/"), "kind": kind}


def with_secrets(manifest: Json) -> Json:
    """Return a Secret with its content concealed and in the form that the API server keeps; other objects unchanged."""
    if manifest["kind"] != "Secret" or not manifest.keys() & {"data", "stringData"}:
        return manifest
    texts = reveal(manifest.get("stringData", {}))
    encoded = {
        name: text if text == UNKNOWN else base64.b64encode(text.encode()).decode() for name, text in texts.items()
    }
    data = reveal(manifest.get("data", {})) | encoded
    return {name: item for name, item in manifest.items() if name != "stringData"} | {"data": Secret(data)}


def state(live: Json, inputs: Json) -> Json:
    """Return the object as the engine keeps it, without the API server's bookkeeping."""
    # The engine writes its whole state at every step, so the large schemas of Kueue's kinds are left out.
    left_out = ("spec",) if live["kind"] == "CustomResourceDefinition" else ()
    metadata = {name: item for name, item in live["metadata"].items() if name != "managedFields"}
    kept = {name: item for name, item in live.items() if name not in left_out}
    return conceal(with_secrets({**kept, "metadata": metadata}), inputs)


def as_written(live: Json) -> Json:
    """Return a live object in the form of inputs, for an object that no program has written yet."""
    metadata = {name: item for name, item in live["metadata"].items() if name not in SERVER_METADATA}
    return {**{name: item for name, item in live.items() if name != "status"}, "metadata": metadata}


def still_there(live: Json | None, state: Json) -> str:
    """Return why an object that is being deleted still exists; empty when it is gone or another one has its name."""
    if live is None or live["metadata"]["uid"] != state["metadata"]["uid"]:
        return ""
    finalizers = live["metadata"].get("finalizers") or []
    held = f"held by finalizers {', '.join(finalizers)}" if finalizers else "still being deleted"
    return f"{live['kind']} {live['metadata']['name']} is {held}"


CREATOR = "pulumi-kubernetes"
"""Field manager of every create. Each update is a server-side apply under a name of the object's own, which the
engine's state keeps. Before the first update that name takes over the fields that the creator, kubectl and clients
without server-side apply have written."""

_STATE_KEY = "__fieldManager"
_PATCH_FORCE = "pulumi.com/patchForce"
_CREATORS = (CREATOR, "pulumi-kubernetes.exe", "pulumi-resource-kubernetes")
_TAKEN_OVER = (
    ("kubectl", "Apply"),
    ("kubectl", "Update"),
    ("before-first-apply", "Update"),
    *((creator, "Update") for creator in _CREATORS),
)
"""Name prefixes and operations of the managers that lose their fields to the object's own manager."""


def manager_of(state: Json) -> str:
    """Return the manager that the state names, or a new one."""
    return state.get(_STATE_KEY) or f"{CREATOR}-{secrets.token_hex(4)}"


def remember_manager(state: Json, manager: str) -> Json:
    """Return the state with the name of the object's own manager."""
    return {**state, _STATE_KEY: manager}


def taken_over(live: Json, manager: str) -> list[Json] | None:
    """Return the managed fields of `live` after `manager` took over its own fields; None if there are none to take
    over."""
    entries: list[Json] = live["metadata"].get("managedFields") or []
    taken = [entry for entry in entries if _is_taken_over(entry)]
    if not taken:
        return None
    own = [entry for entry in entries if (entry["manager"], entry["operation"]) == (manager, "Apply")]
    fields = reduce(merge, [entry["fieldsV1"] for entry in (*own, *taken)])
    applied = {**(own or taken)[0], "manager": manager, "operation": "Apply", "fieldsV1": fields}
    return [*(entry for entry in entries if entry not in own and entry not in taken), applied]


def is_forced(inputs: Json, live: Json, *, preview: bool) -> bool:
    """Return whether an update takes fields from their owners instead of ending in a conflict.

    A preview takes over nothing, so it forces the fields that an update would have taken over from the creator.
    """
    entries: list[Json] = live["metadata"].get("managedFields") or []
    created = any(entry["operation"] == "Update" and entry["manager"] in _CREATORS for entry in entries)
    asked = (inputs["metadata"].get("annotations") or {}).get(_PATCH_FORCE) == "true"
    return asked or not entries or (preview and created)


def _is_taken_over(entry: Json) -> bool:
    of_object = not entry.get("subresource")
    return of_object and any(
        entry["manager"].startswith(name) and entry["operation"] == operation for name, operation in _TAKEN_OVER
    )


WAIT_FOR = "pulumi.com/waitFor"
DEFAULT_TIMEOUT_SECONDS = 600.0
_FIRST_PAUSE_SECONDS, _LAST_PAUSE_SECONDS = 0.05, 1.0

type Unmet = Callable[[Json], str]
"""Returns what an object still lacks; empty if it is ready."""


def requirement(inputs: Json) -> Unmet | None:
    """Return the condition for which a creation or update waits; None if it waits for nothing.

    Without an annotation only Deployment, Namespace and CustomResourceDefinition are awaited; the published provider
    awaits more kinds. Of its expressions, only those of the program are known here.
    """
    annotations: dict[str, str] = inputs.get("metadata", {}).get("annotations") or {}
    if WAIT_FOR not in annotations:
        return _BUILT_IN.get(inputs["kind"])
    check = _expression(annotations[WAIT_FOR])
    return lambda live: _generation_unmet(live) or check(live)


def poll(unmet: Callable[[], str], timeout_seconds: float) -> None:
    """Block until `unmet` returns an empty text. Raises Refusal if it does not within `timeout_seconds`."""
    deadline, pause = time.monotonic() + timeout_seconds, _FIRST_PAUSE_SECONDS
    while lack := unmet():
        if time.monotonic() > deadline:
            raise Refusal(f"timed out after {timeout_seconds:g} s: {lack}")
        time.sleep(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)


def _expression(text: str) -> Unmet:
    form, _, rest = text.partition("=")
    if form == "condition":
        kind, _, status = rest.partition("=")
        return lambda live: _condition_unmet(live, kind, status or "True")
    if form == "jsonpath" and _PATH.fullmatch(rest):
        return lambda live: (
            "" if any(found not in (None, "") for found in _select(rest, live)) else f"{rest} has no value"
        )
    raise Refusal(f"{WAIT_FOR}: expected `condition=TYPE[=STATUS]` or `jsonpath={{.NAME[*].NAME}}`, got {text!r}")


_STEP = re.compile(r"\.([\w-]+)|\[\*\]")
_PATH = re.compile(rf"\{{({_STEP.pattern})+\}}")


def _select(path: str, value: Any) -> list[Any]:
    """Return the values at a JSONPath of names and `[*]`."""
    values: list[Any] = [value]
    for name in _STEP.findall(path):
        if name:
            values = [found[name] for found in values if isinstance(found, dict) and name in found]
        else:
            values = [item for found in values if isinstance(found, list) for item in found]
    return values


def _condition_unmet(live: Json, kind: str, status: str) -> str:
    for condition in live.get("status", {}).get("conditions") or []:
        if condition["type"].lower() == kind.lower():
            reason = f": {condition.get('message', '')}".rstrip(": ")
            return "" if condition["status"].lower() == status.lower() else f"{kind} is {condition['status']}{reason}"
    return f"no condition {kind} yet"


def _generation_unmet(live: Json) -> str:
    observed = live.get("status", {}).get("observedGeneration")
    if observed is None or observed >= live["metadata"].get("generation", 0):
        return ""
    return "its controller has not seen the newest generation"


def _deployment_unmet(live: Json) -> str:
    wanted, status = live["spec"].get("replicas", 1), live.get("status", {})
    if "observedGeneration" not in status:
        return "its controller has not seen it"
    ready = status.get("availableReplicas", 0)
    return _generation_unmet(live) or ("" if ready >= wanted else f"{ready} of {wanted} replicas are available")


def _namespace_unmet(live: Json) -> str:
    phase = live.get("status", {}).get("phase", "unset")
    return "" if phase == "Active" else f"phase is {phase}"


_BUILT_IN: dict[str, Unmet] = {
    "Deployment": _deployment_unmet,
    "Namespace": _namespace_unmet,
    "CustomResourceDefinition": lambda live: _condition_unmet(live, "Established", "True"),
}

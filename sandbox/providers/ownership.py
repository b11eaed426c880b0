"""Field managers of objects, as the published provider arranges them.

It creates an object by POST under one name for all objects. Each update is a server-side apply under a name of
the object's own, which the engine's state keeps; before the first one that name takes over what the creator,
kubectl and clients of the time before server-side apply have written. Pure: `sandbox.providers.kubernetes` asks the
API server.
"""

import secrets
from functools import reduce

from sandbox.providers.values import Object, merged

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

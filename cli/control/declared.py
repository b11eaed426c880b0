"""What of a live object was declared, and by whom: for submitting a job again, or changing a label of it.

Pure. Whoever declared it by server-side apply, as Pulumi does, shall find its own object afterwards: so it is applied
under the declarer's name, with the declared fields and no others. Kueue's own changes are no part of it: they are
taken back as Kueue takes them back when it stops a job, from the pod sets that it recorded
(https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/jobset/jobset_controller.go).
"""

import json
from copy import deepcopy
from typing import Any

from infra.api_server import Json

_SERVERS = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "ownerReferences")
"""Metadata that the API server gives."""
_KUEUES = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a pod's spec that Kueue adds to when it admits a job."""


def declarer(live: Json) -> str | None:
    """Who declared the object by server-side apply; None: nobody did.

    Controllers that apply a part of it have not declared what it runs.
    """
    for entry in live["metadata"].get("managedFields", []):
        if entry["operation"] == "Apply" and "f:replicatedJobs" in entry["fieldsV1"].get("f:spec", {}):
            return entry["manager"]
    return None


def declared(live: Json, manager: str) -> Json:
    """The fields that the manager has applied and nobody has changed since."""
    entries = live["metadata"]["managedFields"]
    fields = next(each for each in entries if each["manager"] == manager and each["operation"] == "Apply")["fieldsV1"]
    metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
    found = _owned(live, fields)
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        **found,
        "metadata": {**metadata, **found.get("metadata", {})},
    }


def submission(live: Json, workload: Json | None) -> Json:
    """The object as it was submitted, to submit it once more: without what servers and Kueue wrote."""
    manager = declarer(live)
    again = deepcopy(declared(live, manager)) if manager else _without_servers(live)
    again["spec"].pop("suspend", None)
    for replicated in again["spec"]["replicatedJobs"] if workload else ():
        recorded = _pod_spec(workload, replicated["name"])
        spec = replicated["template"]["spec"]["template"]["spec"]
        for field in _KUEUES if recorded else ():
            spec.pop(field, None)
            spec |= {field: recorded[field]} if recorded.get(field) else {}
    return again


def _without_servers(live: Json) -> Json:
    again = deepcopy({key: value for key, value in live.items() if key != "status"})
    again["metadata"] = {key: value for key, value in again["metadata"].items() if key not in _SERVERS}
    return again


def _pod_spec(workload: Json | None, pod_set: str) -> Json:
    sets: list[Json] = workload["spec"]["podSets"] if workload else []
    return next((each["template"]["spec"] for each in sets if each["name"] == pod_set), {})


def _owned(value: Any, fields: Json) -> Any:
    """What of a value the field set names (https://kubernetes.io/docs/reference/using-api/server-side-apply/)."""
    inner = {key: below for key, below in fields.items() if key != "."}
    if not inner:
        return value
    if isinstance(value, list):
        items: list[Any] = value
        # Fields are told in the order of their keys, and a list is another one in another order.
        found = {_index(items, key): {**below, **_keys(key)} for key, below in inner.items()}
        return [_owned(item, found[index]) for index, item in enumerate(items) if index in found]
    return {key[2:]: _owned(value[key[2:]], below) for key, below in inner.items() if key[2:] in value}


def _keys(key: str) -> Json:
    """The fields by which an item of a list is known belong to it."""
    return {f"f:{name}": {} for name in json.loads(key[2:])} if key.startswith("k:") else {}


def _index(items: list[Any], key: str) -> int | None:
    """Where the item is that a key such as `k:{"name":"slice"}` or `v:"word"` names; None: it is gone."""
    wanted = json.loads(key[2:])
    if key.startswith("v:"):
        return next((index for index, item in enumerate(items) if item == wanted), None)
    matching = (i for i, item in enumerate(items) if all(item.get(name) == it for name, it in wanted.items()))
    return next(matching, None)

"""What of a live JobSet was declared, and by whom: for submitting a job again, or changing a label of it.

Pure. Changes are made under the declarer's name, so that the declarer's next update meets no conflict. Pulumi creates
an object under one name and applies its updates under another, which adopts what the first one owns. Kueue's own
changes are no part of what was declared: they are taken back as Kueue does when it stops a job, from the pod sets that
it recorded (https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/jobset/jobset_controller.go).
"""

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from infra.kubernetes import Json

_KUEUES = ("nodeSelector", "tolerations", "schedulingGates")
"""Fields of a pod's spec that Kueue adds to when it admits a job."""


@dataclass(frozen=True)
class Declarer:
    """A field manager, and what it declared."""

    manager: str
    applies: bool
    """By server-side apply; otherwise it created the object."""
    fields: Json


def declarer(live: Json) -> Declarer | None:
    """Who declared what the JobSet runs; None: its managed fields do not say.

    Controllers that change a part of it have not.
    """
    entries = live["metadata"].get("managedFields", [])
    found = [
        Declarer(entry["manager"], entry["operation"] == "Apply", entry["fieldsV1"])
        for entry in entries
        if any("." in job for job in entry["fieldsV1"].get("f:spec", {}).get("f:replicatedJobs", {}).values())
    ]
    return max(found, key=lambda each: each.applies, default=None)


def declared(live: Json, by: Declarer) -> Json:
    """The fields that the declarer has set and nobody has changed since."""
    metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
    found = _owned(live, by.fields)
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        **found,
        "metadata": {**metadata, **found.get("metadata", {})},
    }


def submission(live: Json, by: Declarer, workload: Json | None) -> Json:
    """The object as it was submitted, to submit it once more: without what servers and Kueue wrote."""
    again = deepcopy(declared(live, by))
    again["spec"].pop("suspend", None)
    for replicated in again["spec"]["replicatedJobs"] if workload else ():
        recorded = _pod_spec(workload, replicated["name"])
        spec = replicated["template"]["spec"]["template"]["spec"]
        for field in _KUEUES if recorded else ():
            spec.pop(field, None)
            spec |= {field: recorded[field]} if recorded.get(field) else {}
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

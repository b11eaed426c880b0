"""Kueue's objects as values: queues and what waits in them."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from cli.observed.objects import Object, conditions, moment
from cli.observed.snapshot import Queue, Share, Workload
from infra.names import TPU_RESOURCE, team_of

_SCALES = {"k": 1_000, "M": 1_000_000}


def workload(found: Object, stopped_queues: Collection[str] = ()) -> Workload:
    """A Workload; `stopped_queues` are those of the LocalQueues of its namespace that are stopped."""
    metadata, spec, status = found["metadata"], found["spec"], found.get("status", {})
    admission: dict[str, Any] = status.get("admission") or {}
    owners: list[dict[str, str]] = metadata.get("ownerReferences", [])
    requeue: dict[str, Any] = status.get("requeueState") or {}
    return Workload(
        name=metadata["name"],
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        queue=team_of(spec.get("queueName", "")),
        owner=owners[0]["name"] if owners else "",
        priority=spec.get("priority", 0),
        chips=sum(map(_chips_asked, spec.get("podSets", []))),
        created=moment(metadata, "creationTimestamp", 0.0),
        active=spec.get("active", True),
        admitted_by=admission.get("clusterQueue", ""),
        flavors=_flavors(admission),
        requeue_at=moment(requeue, "requeueAt", 0.0) or None,
        evictions=_evictions(status),
        checks=tuple(
            (check["name"], check.get("state", ""), check.get("message", ""))
            for check in status.get("admissionChecks", [])
        ),
        conditions=conditions(found),
        paused=spec.get("queueName") in stopped_queues,
    )


def _flavors(admission: dict[str, Any]) -> tuple[str, ...]:
    assigned = [podset.get("flavors", {}) for podset in admission.get("podSetAssignments", [])]
    return tuple(dict.fromkeys(flavors[TPU_RESOURCE] for flavors in assigned if TPU_RESOURCE in flavors))


def _evictions(status: dict[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for told in (status.get("schedulingStats") or {}).get("evictions", []):
        found[told["reason"]] = found.get(told["reason"], 0) + int(told.get("count", 0))
    return found


def _chips_asked(podset: dict[str, Any]) -> int:
    containers: list[dict[str, Any]] = podset["template"]["spec"].get("containers", [])
    of_pod = 0
    for container in containers:
        resources = container.get("resources", {})
        asked = {**resources.get("limits", {}), **resources.get("requests", {})}
        of_pod += count(asked.get(TPU_RESOURCE, 0))
    return of_pod * int(podset.get("count", 1))


def count(quantity: object) -> int:
    """A whole number as Kubernetes spells it."""
    text = str(quantity)
    return int(text[:-1]) * _SCALES[text[-1]] if text[-1:] in _SCALES else int(text)


def queue(found: Object, namespaces: dict[str, str]) -> Queue:
    """A ClusterQueue; `namespaces` is where the jobs of each queue are."""
    status, name = found.get("status", {}), found["metadata"]["name"]
    return Queue(
        name=name,
        namespace=namespaces.get(name, ""),
        shares=tuple(_shares(found["spec"].get("resourceGroups", []), status.get("flavorsReservation", []))),
        pending=status.get("pendingWorkloads", 0),
        admitted=status.get("reservingWorkloads", 0),
        conditions=conditions(found),
    )


def _shares(groups: Sequence[dict[str, Any]], reserved: Sequence[dict[str, Any]]) -> list[Share]:
    quotas = {
        flavor["name"]: count(resource.get("nominalQuota", 0))
        for group in groups
        for flavor in group["flavors"]
        for resource in flavor["resources"]
        if resource["name"] == TPU_RESOURCE
    }
    used = {
        flavor["name"]: (count(resource.get("total", 0)), count(resource.get("borrowed", 0)))
        for flavor in reserved
        for resource in flavor["resources"]
        if resource["name"] == TPU_RESOURCE
    }
    return [Share(name, quota, *used.get(name, (0, 0))) for name, quota in quotas.items()]


def stopped(local_queues: Iterable[Object]) -> set[str]:
    """Return the names of those LocalQueues that Kueue admits no job from."""
    return {each["metadata"]["name"] for each in local_queues if each["spec"].get("stopPolicy", "None") != "None"}


def position(waiting: Sequence[Workload], wanted: Workload) -> int | None:
    """Place of a Workload among those that wait in its queue, from 1, in the order of admission."""
    line = [each for each in waiting if each.waits and each.queue == wanted.queue]
    order = sorted(line, key=lambda each: (-each.priority, each.created, each.name))
    return next((place for place, each in enumerate(order, 1) if each.uid == wanted.uid), None)

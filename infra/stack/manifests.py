"""Kubernetes objects as plain values: manifests, and the quantities and conditions in them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import yaml

from infra.stack.names import RBAC_GROUP, REQUEUED_LAST, STACK_ANNOTATION

type Manifest = dict[str, object]
type Object = Mapping[str, Any]
"""An object of the Kubernetes API, as JSON."""

OURS = {"pulumi.com/patchForce": "true"}
"""Reverts what another program has changed. Without it an update ends in a conflict, except with kubectl, whose changes
the provider always reverts
(https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply)."""
WAIT_FOR = "pulumi.com/waitFor"
"""Annotation with the condition under which the provider counts an object as created."""
_SUFFIXES = ("m", "", "k", "M", "G")
"""Suffixes of a quantity, each 1,000 times the one before; the second is for 1."""
_SCALES = {
    **{suffix: 1000.0**power for power, suffix in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), -3)},
    **{f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", 1)},
}
_QUANTITY = re.compile(rf"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)({'|'.join(_SCALES)})")


def is_stopped(queue: Object) -> bool:
    """Return whether somebody has stopped a ClusterQueue or a LocalQueue."""
    return queue["spec"].get("stopPolicy", "None") != "None"


def cohort_of(queue: Object) -> str | None:
    """Return the cohort of a ClusterQueue, in either version of the API."""
    return queue["spec"].get("cohortName") or queue["spec"].get("cohort") or None


def related(queues: Iterable[Object], name: str) -> list[Object]:
    """Return a ClusterQueue, which must be among `queues`, and all others of its cohort."""
    found = list(queues)
    cohort = next(cohort_of(queue) for queue in found if queue["metadata"]["name"] == name)
    return [each for each in found if each["metadata"]["name"] == name or (cohort and cohort_of(each) == cohort)]


def manifest(
    api_version: str,
    kind: str,
    name: str,
    namespace: str | None = None,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    **fields: object,
) -> Manifest:
    """Return the manifest of an object. `fields` are all fields except its type and metadata."""
    metadata: Manifest = {"name": name}
    for key, value in (("namespace", namespace), ("labels", labels), ("annotations", annotations)):
        if value:
            metadata[key] = value
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def service_account(name: str, namespace: str) -> Mapping[str, str]:
    """Return a service account as an RBAC subject."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def role_binding(name: str, role: str, subjects: Sequence[Mapping[str, str]], namespace: str | None = None) -> Manifest:
    """Return the binding that gives subjects a role of a namespace; without a namespace, a ClusterRole."""
    kind = "Role" if namespace else "ClusterRole"
    reference = {"apiGroup": RBAC_GROUP, "kind": kind, "name": role}
    return manifest(f"{RBAC_GROUP}/v1", f"{kind}Binding", name, namespace, roleRef=reference, subjects=subjects)


def owner_annotations(prefix: str) -> dict[str, str]:
    """Return the annotations of the stack's objects. In an existing cluster, where other stacks may have objects too,
    the `prefix` of its names says whose they are."""
    return {**OURS, STACK_ANNOTATION: prefix} if prefix else OURS


def mark_ours(manifest: Mapping[str, object], prefix: str = "") -> Manifest:
    """Return the object with the annotations of the stack's objects."""
    metadata = cast(dict[str, Any], manifest["metadata"])
    annotations = {**metadata.get("annotations", {}), **owner_annotations(prefix)}
    return {**manifest, "metadata": {**metadata, "annotations": annotations}}


def quantity(amount: float) -> str:
    """Return an amount, to a thousandth, as Kueue rewrites it in a new queue. Otherwise it would show as drift."""
    if not amount:
        return "0"
    count, scale = round(amount * 1000), 0
    while count % 1000 == 0:
        count, scale = count // 1000, scale + 1
    return f"{count}{_SUFFIXES[scale]}"


def amount(written: str | float) -> float:
    """Return the amount of a quantity of Kubernetes, such as `4`, `500m` or `2Gi`.

    Raise ValueError if it is not a quantity.
    """
    found = _QUANTITY.fullmatch(str(written))
    if found is None:
        raise ValueError(f"a quantity such as 4, 500m or 2Gi, not {written!r}")
    return float(found[1]) * _SCALES[found[2]]


def requests(pod: Object) -> dict[str, float]:
    """Return the resources that a pod with this spec requests.

    Its containers run at the same time, after its init containers, one after the other. An init container with
    `restartPolicy: Always` keeps running next to all later ones (`PodRequests` in k8s.io/component-helpers/resource).
    """
    most, beside = Counter[str](), Counter[str]()
    for container in pod.get("initContainers", []):
        own = _container_requests(container)
        most |= beside + own
        if container.get("restartPolicy") == "Always":
            beside += own
    return dict(most | sum(map(_container_requests, pod["containers"]), beside))


def _container_requests(container: Object) -> Counter[str]:
    """Return the requests of a container. A limit without a request is the request."""
    resources = container.get("resources", {})
    asked = {**resources.get("limits", {}), **resources.get("requests", {})}
    # A Counter adds and compares amounts by resource, whether or not they are whole numbers.
    return Counter(cast(dict[str, int], {name: amount(each) for name, each in asked.items()}))


@dataclass(frozen=True)
class Condition:
    """A status condition of an object, written by a controller."""

    kind: str
    holds: bool
    reason: str
    message: str
    since: float
    """Time of its last change between true and false, in seconds since the epoch."""


def conditions(found: Object) -> tuple[Condition, ...]:
    """Return all conditions of an object."""
    return tuple(
        Condition(
            each["type"],
            each.get("status") == "True",
            each.get("reason", ""),
            each.get("message", ""),
            moment(each, "lastTransitionTime", 0.0),
        )
        for each in found.get("status", {}).get("conditions", [])
    )


def condition(found: Object, kind: str) -> Mapping[str, str]:
    """Return the condition of that kind; empty if the object has none."""
    listed: list[dict[str, str]] = found.get("status", {}).get("conditions", [])
    return {each["type"]: each for each in listed}.get(kind, dict[str, str]())


def is_true(found: Object, kind: str) -> bool:
    """Return whether the condition of that kind is true."""
    return condition(found, kind).get("status") == "True"


def moment(holder: Mapping[str, Any], key: str, otherwise: float) -> float:
    """Return a time of an object in seconds since the epoch; `otherwise` if it is missing."""
    return datetime.fromisoformat(holder[key]).timestamp() if holder.get(key) else otherwise


def queued_at(workload: Object) -> float:
    """Return the time that decides the place of a Workload of Kueue among those of the same priority."""
    evicted = condition(workload, "Evicted")
    again = evicted.get("status") == "True" and evicted.get("reason") in REQUEUED_LAST
    created = moment(workload["metadata"], "creationTimestamp", 0.0)
    return moment(evicted, "lastTransitionTime", 0.0) if again else created


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector of Kubernetes selects these labels."""
    return (selector.get("matchLabels") or {}).items() <= labels.items() and all(
        holds(each, labels.get(each["key"])) for each in selector.get("matchExpressions") or ()
    )


def holds(rule: Mapping[str, Any], value: str | None) -> bool:
    """Return whether a rule of a label selector or a node affinity holds for a label's value; `None`: no such label."""
    values = list[str](rule.get("values") or ())
    match rule["operator"]:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case "Gt" | "Lt" as operator:
            (bound,) = values
            if value is None or not (value.isdecimal() and bound.isdecimal()):
                return False
            return int(value) > int(bound) if operator == "Gt" else int(value) < int(bound)
        case _:  # DoesNotExist
            return value is None


def configuration(config_map: Object | None) -> Object:
    """Return the configuration of a controller in its ConfigMap; empty if there is none, which means its defaults."""
    texts = (config_map or {}).get("data", {}).values()
    return next((parsed for text in texts if isinstance(parsed := yaml.safe_load(text), dict)), {})

"""Which flavors' nodes a pod may use.

Follows `checkFlavorForPodSets` in `pkg/scheduler/flavorassigner` of Kueue: taints must be tolerated,
and of the pod's node selector and required node affinity the flavor's own labels count alone.
"""

from collections.abc import Iterable, Mapping
from typing import Any

type Object = Mapping[str, Any]


def usable_flavors(pod: Object, flavors: Iterable[Object]) -> frozenset[str]:
    """Names of the ResourceFlavors that suit the pod's spec."""
    return frozenset(flavor["metadata"]["name"] for flavor in flavors if _suits(pod, flavor.get("spec", {})))


def _suits(pod: Object, flavor: Object) -> bool:
    tolerations = [*pod.get("tolerations", []), *flavor.get("tolerations", [])]
    taints = [taint for taint in flavor.get("nodeTaints", []) if taint["effect"] in ("NoSchedule", "NoExecute")]
    if not all(any(_tolerates(toleration, taint) for toleration in tolerations) for taint in taints):
        return False
    labels: Mapping[str, str] = flavor.get("nodeLabels", {})
    selected = all(labels[key] == value for key, value in pod.get("nodeSelector", {}).items() if key in labels)
    return selected and _in_affinity(pod, labels)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint["key"])
    return toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", "")


def _in_affinity(pod: Object, labels: Mapping[str, str]) -> bool:
    node = pod.get("affinity", {}).get("nodeAffinity", {})
    terms = node.get("requiredDuringSchedulingIgnoredDuringExecution", {}).get("nodeSelectorTerms", [])
    return not terms or any(_in_term(term, labels) for term in terms)


def _in_term(term: Object, labels: Mapping[str, str]) -> bool:
    """A term that speaks of none of the labels holds for every flavor."""
    rules = [rule for rule in term.get("matchExpressions", []) if rule["key"] in labels]
    return all(_holds(rule, labels[rule["key"]]) for rule in rules)


def _holds(rule: Object, value: str) -> bool:
    match rule["operator"]:
        case "In":
            return value in rule["values"]
        case "NotIn":
            return value not in rule["values"]
        case "Exists":
            return True
        case "Gt":
            return int(value) > int(rule["values"][0])
        case "Lt":
            return int(value) < int(rule["values"][0])
        case _:  # DoesNotExist
            return False

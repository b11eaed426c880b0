"""Which flavors suit a pod."""

from typing import Any

import pytest

from infra.admission.manifests import usable_flavors

X = {"metadata": {"name": "x"}, "spec": {"nodeLabels": {"group": "x", "chips": "4"}}}
Y = {"metadata": {"name": "y"}, "spec": {"nodeLabels": {"group": "y"}}}
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}


def _affinity(*terms: list[dict[str, Any]]) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [{"matchExpressions": term} for term in terms]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def _rule(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": values}


@pytest.mark.parametrize(
    ("pod", "usable"),
    [
        ({}, {"x", "y"}),
        ({"nodeSelector": {"group": "x"}}, {"x"}),
        ({"nodeSelector": {"group": "x", "disk": "large"}}, {"x"}),
        (_affinity([_rule("group", "In", "y", "z")]), {"y"}),
        (_affinity([_rule("group", "NotIn", "y")]), {"x"}),
        (_affinity([_rule("group", "In", "z")], [_rule("group", "Exists")]), {"x", "y"}),
        (_affinity([_rule("group", "DoesNotExist")]), set[str]()),
        # The other flavor says nothing of its chips, so whatever is asked of them does not rule it out.
        (_affinity([_rule("chips", "Gt", "4")]), {"y"}),
        (_affinity([_rule("chips", "Lt", "8")]), {"x", "y"}),
    ],
)
def test_of_selector_and_affinity_a_flavors_own_labels_count(pod: dict[str, Any], usable: set[str]) -> None:
    assert usable_flavors(pod, [X, Y]) == usable


@pytest.mark.parametrize(
    ("toleration", "suits"),
    [
        ({"key": "google.com/tpu", "operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "google.com/tpu", "value": "present"}, True),
        ({"key": "google.com/tpu", "value": "absent"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "google.com/tpu", "operator": "Exists", "effect": "NoExecute"}, False),
    ],
)
def test_taints_must_be_tolerated(toleration: dict[str, Any], suits: bool) -> None:
    tainted = {"metadata": {"name": "x"}, "spec": {"nodeTaints": [TAINT, TAINT | {"effect": "PreferNoSchedule"}]}}
    assert usable_flavors({}, [tainted]) == set()
    assert usable_flavors({"tolerations": [toleration]}, [tainted]) == ({"x"} if suits else set())

"""`multislice doctor` on clusters that other tools made, through the command line."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.api_server import Played
from tests.cli.foreign.clusters import JOBSETS, condition, foreign, node
from tests.cli.rehearse.clusters import Object, named, path, xpk

type Answer = Callable[..., dict[str, Any]]

NODES = "/api/v1/nodes"


def deployment(kind: str, available: str = "True") -> Object:
    container = {"image": f"registry.k8s.io/{kind}/{kind}:v0.19.2"}
    spec = {"template": {"spec": {"containers": [container]}}}
    status = {"conditions": [condition("Available", message="has minimum availability", status=available)]}
    return {**named(f"{kind}-controller-manager"), "spec": spec, "status": status}


def sound(**more: Any) -> Played:
    """A cluster of xpk in which nothing is wrong."""
    ready = node()
    ready["status"]["nodeInfo"] = {"kubeletVersion": "v1.36.2"}
    played = foreign(*xpk(), ready, **more)
    local = f"{path('localqueues', more.get('version', 'v1beta2'), 'default')}"
    active = {"status": {"conditions": [condition("Active", "Ready", "Can admit new workloads")]}}
    played.collections[local] = [each | active for each in xpk() if each["kind"] == "LocalQueue"]
    for kind in ("kueue", "jobset"):
        played.collections[f"/apis/apps/v1/namespaces/{kind}-system/deployments"] = [deployment(kind)]
    played.collections["/apis"][1]["versions"] = [{"groupVersion": "jobset.x-k8s.io/v1alpha2"}]
    played.collections[""] = [{"metadata": {"name": "version"}, "gitVersion": "v1.36.2"}]
    return played


def checks(answer: Answer, played: Played, failing: int) -> dict[str, tuple[str, str]]:
    """Return verdict and text of each check by its subject."""
    found = answer(played, "doctor", exit_status=2 if failing else 0)["checks"]
    assert len([each for each in found if each["verdict"] == "failed"]) == failing, found
    return {each["subject"]: (each["verdict"], each["says"]) for each in found}


def test_an_older_kueue_is_checked_in_its_own_version(answer: Answer) -> None:
    found = checks(answer, sound(version="v1beta1"), 0)
    assert found["Kueue"] == ("ok", "serves v1beta1, an older one")


def broken(change: Callable[[Played], object]) -> Played:
    played = sound()
    change(played)
    return played


BROKEN: dict[str, tuple[Callable[[Played], object], str, str]] = {
    "no Kueue": (lambda each: each.collections["/apis"].pop(0), "Kueue", "does not serve the API group"),
    "no JobSet": (lambda each: each.collections["/apis"].pop(1), "JobSet", "does not serve the API group"),
    "an unknown version": (
        lambda each: each.collections["/apis"][0].update(versions=[{"groupVersion": "kueue.x-k8s.io/v1"}]),
        "Kueue",
        "serves v1, which this program does not read",
    ),
    "a controller that is down": (
        lambda each: each.collections["/apis/apps/v1/namespaces/kueue-system/deployments"].append(
            deployment("other", "False")
        ),
        "other-controller-manager",
        "has minimum availability",
    ),
    "a stopped queue": (
        lambda each: each.collections[path("clusterqueues")][0]["spec"].update(stopPolicy="Hold"),
        "ClusterQueue cluster-queue",
        "its stopPolicy is Hold",
    ),
    "a queue that is missing": (
        lambda each: each.collections[path("localqueues", namespace="default")][0]["spec"].update(clusterQueue="gone"),
        "LocalQueue multislice-queue",
        "'gone' does not exist",
    ),
    "a namespace without queues": (
        lambda each: each.collections.update({path("localqueues", namespace="default"): []}),
        "LocalQueues",
        "has no LocalQueue",
    ),
    "a flavor without nodes": (
        lambda each: each.collections[path("resourceflavors")][0]["spec"].update(nodeLabels={"a": "b"}),
        "flavor 1xv6e-16",
        "no node has its labels a=b",
    ),
    "a host that is not ready": (
        lambda each: each.collections[NODES][0]["status"].update(conditions=[condition("Ready", status="False")]),
        "slice np-0",
        "not ready: gke-1",
    ),
    "a right": (lambda each: each.refused.update({JOBSETS: 403}), "jobs", "you may not list jobsets.jobset.x-k8s.io"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_what_is_wrong_is_one_failed_check(what: str, answer: Answer) -> None:
    change, subject, text = BROKEN[what]
    verdict, says = checks(answer, broken(change), 1)[subject]
    assert (verdict, text in says) == ("failed", True), says


def test_objects_that_are_half_deleted_are_no_error(answer: Answer) -> None:
    played = sound()
    for items in played.collections.values():
        for each in items:
            if "spec" in each and each["metadata"]["name"] != "gke-1":
                del each["spec"]
    found = answer(played, "doctor", exit_status=2)["checks"]
    assert all(each["says"] for each in found)


def test_a_user_without_rights_is_told_which(answer: Answer) -> None:
    played = sound()
    played.refused |= {each: 403 for each in [*played.collections, path("workloads"), NODES] if each.count("/") > 2}
    found = {each["subject"]: each for each in answer(played, "doctor", exit_status=2)["checks"]}
    assert "list clusterqueues.kueue.x-k8s.io" in found["cluster"]["says"]
    assert {each["verdict"] for name, each in found.items() if name in ("queues", "flavors", "slices")} == {"skipped"}

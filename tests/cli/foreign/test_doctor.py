"""`multislice doctor` on clusters that other tools made, through the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.api_server import Played
from tests.cli.foreign.clusters import JOBSETS, condition, foreign, node
from tests.cli.rehearse.clusters import Object, named, path, xpk
from tests.cli.shown import check

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


def test_an_older_kueue_is_checked_in_its_own_version(answer: Answer) -> None:
    found = {each["subject"]: each for each in answer(sound(version="v1beta1"), "doctor")["checks"]}
    assert found["Kueue"]["says"] == "serves v1beta1, an older one"
    assert found["kueue-controller-manager"]["says"] == "version 0.19.2, available"
    assert {each["verdict"] for each in found.values()} == {"ok"}


LOCAL = path("localqueues", namespace="default")
KUEUE = "/apis/apps/v1/namespaces/kueue-system/deployments"
BROKEN: dict[str, Callable[[Played], object]] = {
    "no Kueue": lambda each: each.collections["/apis"].pop(0),
    "no JobSet": lambda each: each.collections["/apis"].pop(1),
    "an unknown version": lambda each: each.collections["/apis"][0].update(
        versions=[{"groupVersion": "kueue.x-k8s.io/v1"}]
    ),
    "a controller that is down": lambda each: each.collections[KUEUE].append(deployment("other", "False")),
    "a stopped queue": lambda each: each.collections[path("clusterqueues")][0]["spec"].update(stopPolicy="Hold"),
    "a queue that is missing": lambda each: each.collections[LOCAL][0]["spec"].update(clusterQueue="gone"),
    "a namespace without queues": lambda each: each.collections.update({LOCAL: []}),
    "a flavor without nodes": lambda each: each.collections[path("resourceflavors")][0]["spec"].update(
        nodeLabels={"a": "b"}
    ),
    "a host that is not ready": lambda each: each.collections[NODES][0]["status"].update(
        conditions=[condition("Ready", status="False")]
    ),
    "a right": lambda each: each.refused.update({JOBSETS: 403}),
}


@pytest.mark.costs(cpu_seconds=6)
def test_what_is_wrong_is_said_as_in_the_golden_file(answer: Answer, tmp_path: Path) -> None:
    shown: list[str] = []
    for name, breaks in BROKEN.items():
        played = sound()
        breaks(played)
        failed = (each for each in answer(played, "doctor", exit_status=2)["checks"] if each["verdict"] == "failed")
        shown += [f"# {name}", *(f"{each['subject']}: {each['says']}\n  -> {each['fix']}" for each in failed), ""]
    check("doctor-foreign", "\n".join(shown).replace(str(tmp_path), "FOLDER"))


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

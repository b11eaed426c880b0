"""What a trainer's token may do to nodes, asked of the real API server."""

import re
import subprocess
from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3

from infra.cluster.kubernetes import ApiError, ApiServer, Json
from infra.stack.names import SERVICE_ACCOUNT, SLICE_GROUP_LABEL, TPU_RESOURCE
from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD
from sandbox.daemon import CHECKOUT
from sandbox.node_agent.container import pod_token
from sandbox.node_agent.pod import Pod
from tests.chain.stack import NAMESPACE, Chain
from workloads.spec import BAD_HOST_CHARACTERS, BAD_HOST_KEY
from workloads.training.quarantine import OwnNode

NAME = "marks"


@pytest.fixture(scope="module")
def trainer(stack: Chain) -> Generator[tuple[Json, ApiServer, Json]]:
    """A pod of the trainer's account on a node, the API server as that pod sees it, and another node."""
    api = stack.api
    node, other = [node for node in stack.objects("nodes") if "taints" in node["spec"]][:2]
    pod = _pod(api, node["metadata"]["name"])
    token = pod_token(api, Pod(pod), {})
    pool = urllib3.PoolManager(ca_certs=str(stack.site.pki / "ca.crt"))
    yield node, replace(api, pool=pool, credentials=lambda: {"Authorization": f"Bearer {token}"}), other
    api.delete(f"/api/v1/namespaces/{NAMESPACE}/pods/{NAME}", {"gracePeriodSeconds": 0})
    for marked in (node, other):
        api.patch(f"/api/v1/nodes/{marked['metadata']['name']}", {"spec": {"taints": marked["spec"]["taints"]}})


def _pod(api: ApiServer, node: str) -> Json:
    """Bound by hand, in the scheduler's stead: a trainer's pod may not name its node."""
    container = {
        "name": "main",
        "image": "unused",
        "command": ["sleep", "3600"],
        "resources": {"limits": {TPU_RESOURCE: 4}},
        "securityContext": CONFINED_CONTAINER,
    }
    spec = {
        "schedulerName": "nobody",
        "serviceAccountName": SERVICE_ACCOUNT,
        "securityContext": CONFINED_POD,
        "containers": [container],
    }
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    api.request("POST", pods, {"metadata": {"name": NAME}, "spec": spec})
    target = {"apiVersion": "v1", "kind": "Node", "name": node}
    api.request("POST", f"{pods}/{NAME}/binding", {"metadata": {"name": NAME}, "target": target})
    return api.request("GET", f"{pods}/{NAME}")


def path(node: Json) -> str:
    return f"/api/v1/nodes/{node['metadata']['name']}"


def marked(node: Json, **taint: str) -> Json:
    return {"spec": {"taints": [*node["spec"]["taints"], {"key": BAD_HOST_KEY, "effect": "NoSchedule", **taint}]}}


def test_another_node_cannot_be_marked(trainer: tuple[Json, ApiServer, Json]) -> None:
    _, api, other = trainer
    with pytest.raises(ApiError, match="a trainer changes the node it runs on and no other"):
        api.patch(path(other), marked(other))


ALSO: dict[str, Callable[[Json], Json]] = {
    "label": lambda patch: patch | {"metadata": {"labels": {"slice-group": "stolen"}}},
    "annotation": lambda patch: patch | {"metadata": {"annotations": {"a": "b"}}},
    "finalizer": lambda patch: patch | {"metadata": {"finalizers": ["a.com/b"]}},
    "cordon": lambda patch: {"spec": patch["spec"] | {"unschedulable": True}},
    "another taint": lambda patch: {
        "spec": {"taints": [*patch["spec"]["taints"], {"key": "a", "effect": "NoExecute"}]}
    },
    "no taint": lambda patch: {"spec": {"taints": patch["spec"]["taints"][-1:]}},
    "no mark": lambda patch: {"spec": {"taints": patch["spec"]["taints"][:-1]}},
    "worse mark": lambda patch: {
        "spec": {"taints": [*patch["spec"]["taints"][:-1], {"key": BAD_HOST_KEY, "effect": "NoExecute"}]}
    },
}


@pytest.mark.parametrize("also", ALSO)
def test_nothing_but_the_mark_can_be_changed(trainer: tuple[Json, ApiServer, Json], also: str) -> None:
    node, api, _ = trainer
    with pytest.raises(ApiError, match="a trainer (changes nothing of a node but|adds the taint)"):
        api.patch(path(node), ALSO[also](marked(node)))


def test_a_node_of_no_slice_cannot_be_marked(stack: Chain, trainer: tuple[Json, ApiServer, Json]) -> None:
    node, api, _ = trainer
    group = node["metadata"]["labels"][SLICE_GROUP_LABEL]
    stack.api.patch(path(node), {"metadata": {"labels": {SLICE_GROUP_LABEL: None}}})
    try:
        with pytest.raises(ApiError, match="a trainer marks nodes of slices alone"):
            api.patch(path(node), marked(node))
    finally:
        stack.api.patch(path(node), {"metadata": {"labels": {SLICE_GROUP_LABEL: group}}})


def test_what_is_said_of_a_node_has_a_bound(trainer: tuple[Json, ApiServer, Json]) -> None:
    node, api, _ = trainer
    too_long = {"metadata": {"annotations": {BAD_HOST_KEY: "x" * (BAD_HOST_CHARACTERS + 1)}}}
    with pytest.raises(ApiError, match=f"a trainer says why in {BAD_HOST_CHARACTERS} characters"):
        api.patch(path(node), marked(node) | too_long)


@pytest.mark.parametrize(
    ("method", "rest", "body"),
    [
        ("DELETE", "", {}),
        ("PATCH", "/status", {"status": {"conditions": []}}),
        ("POST", "/../../namespaces/default/pods", {}),
    ],
    ids=["delete", "status", "pods"],
)
def test_the_role_allows_nothing_else(trainer: tuple[Json, ApiServer, Json], method: str, rest: str, body: Any) -> None:
    node, api, _ = trainer
    with pytest.raises(ApiError, match="cannot"):
        api.request(method, path(node) + rest, body, content_type="application/merge-patch+json")


def test_a_token_of_no_pod_can_mark_nothing(stack: Chain, trainer: tuple[Json, ApiServer, Json]) -> None:
    node, api, _ = trainer
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{SERVICE_ACCOUNT}/token"
    token = stack.api.request("POST", account, {"spec": {}})["status"]["token"]
    with pytest.raises(ApiError, match="a trainer changes the node it runs on and no other"):
        replace(api, credentials=lambda: {"Authorization": f"Bearer {token}"}).patch(path(node), marked(node))


def test_a_trainer_marks_its_own_node_and_says_why(
    stack: Chain, trainer: tuple[Json, ApiServer, Json], tmp_path: Path
) -> None:
    node, api, other = trainer
    (tmp_path / "token").write_text(api.credentials()["Authorization"].removeprefix("Bearer "))
    (tmp_path / "ca.crt").write_bytes((stack.site.pki / "ca.crt").read_bytes())
    own = OwnNode(node["metadata"]["name"], stack.site.api_server_url, tmp_path)
    for cause in ("device 3 multiplied wrongly", "once more", "x" * 2 * BAD_HOST_CHARACTERS):
        own.mark(cause)
        found = stack.api.request("GET", path(node))
        assert found["metadata"]["annotations"][BAD_HOST_KEY] == cause[:BAD_HOST_CHARACTERS]
        *others, mark = found["spec"]["taints"]
        assert others == node["spec"]["taints"]
        assert (mark["key"], mark["effect"]) == (BAD_HOST_KEY, "NoSchedule")
    refused = replace(own, name=other["metadata"]["name"]).mark("not mine")
    assert "a trainer changes the node it runs on and no other" in refused
    (line,) = re.findall(
        r"^kubectl get nodes .*$", (CHECKOUT / "docs" / "how-to" / "operations.md").read_text(), re.MULTILINE
    )
    kubectl = f"{stack.programs.path('kubectl')} --kubeconfig={stack.site.kubeconfig}"
    listed = subprocess.check_output(line.replace("kubectl", kubectl), shell=True, text=True).splitlines()
    assert [(row.split()[0], row.split()[-1][:3]) for row in listed] == [(node["metadata"]["name"], "xxx")]

"""Nodes and node pools: whether each slice is whole and fit for use."""

from collections import defaultdict
from collections.abc import Collection, Mapping

from cli.doctor.check import Check, Findings, Scope, fault, ok
from cli.observed.objects import condition, is_true
from cli.observed.slices import without_hosts
from infra.kubernetes import Json
from infra.names import ACCELERATOR_LABEL, NODE_POOL_LABEL, NODES, SLICE_GROUP_LABEL, SYSTEM_POOL
from workloads.spec import BAD_HOST_KEY


def slices(scope: Scope) -> Findings:
    """Whether each slice has all its hosts, and all of them are fit."""
    pools: defaultdict[str, list[Json]] = defaultdict(list)
    for node in scope.listed(NODES):
        if ACCELERATOR_LABEL in node["metadata"]["labels"]:
            pools[node["metadata"]["labels"].get(NODE_POOL_LABEL, "without a node pool")].append(node)
    yield from _hostless(scope, pools)
    hosts = {name: group.shape.hosts for name, group in scope.settings.slices.items()} if scope.settings else {}
    for name, nodes in sorted(pools.items()):
        yield _slice(f"slice {name}", nodes, hosts)
    yield from _marks(pools)


def pools(scope: Scope) -> Findings:
    """What GKE says of the node pools."""
    google = scope.in_google()
    cluster = scope.standing.outputs["cluster"]
    path = f"/v1/projects/{google.project}/locations/{google.region}/clusters/{cluster}/nodePools"
    for pool in google.get("container", path).get("nodePools", []):
        subject, status = f"pool {pool['name']}", pool.get("status", "unknown")
        words = [told.get("message", "") for told in pool.get("conditions", [])] or [pool.get("statusMessage", "")]
        if status in ("RUNNING", "RECONCILING", "PROVISIONING"):
            yield ok(subject, status.lower())
        elif status == "ERROR":
            resource = "cluster-system" if pool["name"] == SYSTEM_POOL else f"slices-{pool['name']}"
            fix = f"suspend the jobs on it, then create it again: pulumi up --stack {scope.stack}"
            yield fault(subject, f"{status}: {'; '.join(words)}", f"{fix} --replace '**::{resource}'")
        else:
            yield fault(subject, f"{status}: {'; '.join(words)}", "wait; GKE is still working on it, or repairs it")


def _hostless(scope: Scope, pools: Collection[str]) -> Findings:
    """What is to be said of slices without a node, which are none of `pools`."""
    hostless = without_hosts(scope.standing.outputs, pools)
    fix = f"see pools; `pulumi up --refresh --stack {scope.stack}`"
    for name, topology in (hostless or {}).items():
        taken = "hosts of spot capacity that Google took come back by themselves"
        yield fault(f"slice {name}", f"no host of its {topology} is there", f"{fix}; {taken}")
    if not pools and hostless is None:
        yield fault("slices", "the cluster has no TPU node", fix)
    elif not pools and not hostless:
        yield ok("slices", "the cluster has no TPU node: all slices come on request")


def _marks(pools: Mapping[str, list[Json]]) -> Findings:
    """Whether more slices are marked than hardware explains. No limit stops a trainer from marking its own node."""
    marked = [name for name, nodes in sorted(pools.items()) if any(_mark(node) for node in nodes)]
    if len(marked) > 1:
        told = f"{len(marked)} of {len(pools)} slices are marked as bad: {', '.join(marked)}"
        fix = f"compare the annotation {BAD_HOST_KEY} of their nodes: one image or one member's job may have marked all"
        yield fault("bad hosts", told, fix)


def _slice(subject: str, nodes: list[Json], hosts: Mapping[str, int]) -> Check:
    marks = {_name(node): mark for node in nodes if (mark := _mark(node))}
    cordoned = [_name(node) for node in nodes if node["spec"].get("unschedulable")]
    silent = [_name(node) for node in nodes if not is_true(node, "Ready")]
    wanted = hosts.get(nodes[0]["metadata"]["labels"].get(SLICE_GROUP_LABEL, ""), len(nodes))
    if silent:
        why = condition(next(node for node in nodes if _name(node) in silent), "Ready").get("message", "no word")
        return fault(subject, f"not ready: {', '.join(silent)}: {why}", f"kubectl describe node {silent[0]}")
    if marks:
        since = min((mark["timeAdded"] for mark in marks.values() if "timeAdded" in mark), default="an unknown time")
        told = f"marked as bad hosts since {since}: {', '.join(marks)}"
        return fault(subject, told, f"kubectl taint nodes {' '.join(marks)} {BAD_HOST_KEY}-, once they are sound")
    if cordoned:
        return fault(subject, f"cordoned: {', '.join(cordoned)}", f"kubectl uncordon {' '.join(cordoned)}")
    if len(nodes) < wanted:
        return fault(subject, f"{len(nodes)} of {wanted} hosts are there", "see pools: GKE makes a slice as a whole")
    return ok(subject, f"all {len(nodes)} hosts are ready")


def _mark(node: Json) -> Json | None:
    return next((taint for taint in node["spec"].get("taints", []) if taint["key"] == BAD_HOST_KEY), None)


def _name(node: Json) -> str:
    return node["metadata"]["name"]

"""Check the chips that Google grants, the hosts of the slices, and the queues."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping

from cli.doctor.checks import Check, Findings, Google, Scope, failed, judge, ok, skipped
from cli.observed.cluster import find_hostless, node_of, queue_of
from cli.render import counted
from infra.cluster.kubernetes import ApiError, Json
from infra.stack.command_lines import replacing
from infra.stack.manifests import condition, is_stopped, is_true
from infra.stack.names import (
    ACCELERATOR_LABEL,
    FLAVORS,
    JOBSET_API_VERSION,
    JOBSETS,
    KUEUE_API_VERSION,
    LOCAL_QUEUES,
    NODE_POOL_LABEL,
    NODES,
    QUEUE_LABEL,
    QUEUES,
    SLICE_GROUP_LABEL,
    SYSTEM_POOL,
    TPU_RESOURCE,
    WORKLOADS,
)
from infra.stack.settings.schema import SliceGroup
from infra.stack.tpu import generations
from workloads.spec import BAD_HOST_KEY

_UNLIMITED = -1


def _flavors(scope: Scope) -> Iterator[tuple[str, Mapping[str, str], int, list[int]]]:
    """Yield the name and the node labels of each flavor, its chips that queues give out, and the chips of each node."""
    given = Counter[str]()
    for share in (share for queue in scope.listed(QUEUES) for share in queue_of(queue, {}).shares):
        given[share.flavor] += share.quota
    nodes = [(node["metadata"].get("labels", {}), node_of(node).chips) for node in scope.listed(NODES)]
    for flavor in scope.listed(FLAVORS):
        name, wanted = flavor["metadata"]["name"], flavor["spec"].get("nodeLabels", {})
        yield name, wanted, given[name], [chips for labels, chips in nodes if wanted.items() <= labels.items()]


def flavors(scope: Scope) -> Findings:
    """Check that each flavor of a foreign cluster has nodes."""
    for name, wanted, quota, chips in _flavors(scope):
        labels = ", ".join(f"{key}={value}" for key, value in wanted.items())
        said = f"{counted(len(chips), 'node')} with {sum(chips)} chips" if chips else f"no node has its labels {labels}"
        fix = "create such nodes, unless an autoscaler does so for waiting pods, or correct nodeLabels"
        yield judge(f"flavor {name}", f"{said}; queues give out {quota} chips", passes=bool(chips), fix=fix)


def quotas(scope: Scope) -> Findings:
    """Check that queues give out no more chips than the nodes have."""
    groups: Mapping[str, SliceGroup] = scope.settings.slices if scope.settings else {}
    for name, _, quota, counts in _flavors(scope):
        chips, group = sum(counts), groups.get(name)
        found = f"queues give out {quota} chips, nodes have {chips}"
        if group and group.capacity.on_request:
            yield ok(f"flavor {name}", f"{found}; the others are created on request")
        else:
            fix = f"see the nodes, or lower the quota and run `{scope.update()}`"
            yield judge(f"flavor {name}", found, passes=quota <= chips, fix=fix)


def google_quota(scope: Scope) -> Findings:
    """Check that Google grants the chips of each slice group."""
    if scope.settings is None:
        yield skipped("TPU quota", "the stack file, which has the number of chips, cannot be read")
        return
    found = scope.in_google()
    groups = scope.settings.slices
    for name, group in groups.items():
        sharing = {other: each for other, each in groups.items() if _quota_of(each) == _quota_of(group)}
        yield from _check_grant(found, name, group, sharing)


def zones(scope: Scope) -> Findings:
    """Check that the zone of each slice group has its machine type."""
    if scope.settings is None:
        return
    found, cloud = scope.in_google(), scope.settings.cloud
    for name, group in scope.settings.slices.items():
        subject, machine, zone = f"slices.{name}.zone", group.shape.machine_type, group.zone_in(cloud)
        path = f"/compute/v1/projects/{found.project}/aggregated/machineTypes"
        items: Json = found.get("compute", path, {"filter": f'name = "{machine}"'}).get("items", {})
        offering = sorted(place.removeprefix("zones/") for place, listed in items.items() if listed.get("machineTypes"))
        near = [other for other in offering if other.startswith(f"{cloud.region}-")]
        if not offering:
            yield skipped(subject, f"Google lists {machine} in no zone")
        elif zone in offering:
            yield ok(subject, f"{zone} has {machine}")
        else:
            fix = f"choose one of {', '.join(near)}" if near else f"choose another region: {', '.join(offering)}"
            yield failed(subject, f"{zone} has no {machine}", fix)


def _quota_of(group: SliceGroup) -> tuple[str, str | None] | None:
    """Return the name of the quota that the group's chips count against, and its family of TPUs."""
    (generation,) = (each for each in generations() if each.name == group.generation)
    return generation.quotas.get(group.capacity.quota) if group.capacity.quota else None


def _check_grant(google: Google, name: str, group: SliceGroup, sharing: Mapping[str, SliceGroup]) -> Findings:
    subject, found = f"slices.{name}", _quota_of(group)
    if found is None:
        yield skipped(subject, f"the quota of {group.generation} with capacity {group.capacity.kind} is unknown")
        return
    quota, family = found
    path = f"/v1/projects/{google.project}/locations/global/services/compute.googleapis.com/quotaInfos/{quota}"
    infos: list[Json] = google.get("cloudquotas", path).get("dimensionsInfos", [])
    wanted = {"region": google.region, **({"tpu_family": family} if family else {})}
    granted = next((int(info["details"]["value"]) for info in infos if _covers(info, wanted)), 0)
    # Groups on request can run one after the other.
    on_request = [each.chips for each in sharing.values() if each.capacity.on_request]
    needed = sum(each.chips for each in sharing.values()) - sum(on_request) + max(on_request, default=0)
    of = "the group has" if len(sharing) == 1 else f"{' and '.join(sharing)} need"
    said = f"Google grants {granted} chips in {google.region}, {of} {needed}"
    fix = f"request a higher {quota}: https://console.cloud.google.com/iam-admin/quotas"
    yield judge(subject, said, passes=granted == _UNLIMITED or granted >= needed, fix=fix)


def _covers(info: Json, wanted: Mapping[str, str]) -> bool:
    dimensions: dict[str, str] = info.get("dimensions") or {}
    places: list[str] = info.get("applicableLocations") or []
    here = dimensions.get("region", wanted["region"] if wanted["region"] in places or not places else "")
    return all({**dimensions, "region": here}.get(key) == value for key, value in wanted.items())


def queues(scope: Scope) -> Findings:
    """Check that each queue of the stack, or of a foreign cluster and its namespace, admits jobs."""
    if scope.up.foreign:
        yield from _queues_of(scope, scope.up.foreign.namespace)
        return
    for name, namespace in scope.up.outputs["queues"].items():
        queue = scope.api.find(f"/apis/{KUEUE_API_VERSION}/clusterqueues/{name}")
        local = scope.api.find(f"/apis/{KUEUE_API_VERSION}/namespaces/{namespace}/localqueues/{name}")
        # A team's `admission: hold` makes both inactive, which is not an error.
        for subject, found in ((f"queue {name}", queue), (f"local queue {name}", local)):
            if found and queue and is_stopped(queue):
                yield ok(subject, f"admits no job, because its stopPolicy is {queue['spec']['stopPolicy']}")
            else:
                missing = failed(subject, "missing", scope.update("--refresh"))
                yield _active(subject, found, "kubectl describe clusterqueue") if found else missing


def _queues_of(scope: Scope, namespace: str) -> Findings:
    found = {each["metadata"]["name"]: each for each in scope.listed(QUEUES)}
    yield from (_open(f"ClusterQueue {name}", each, "kubectl describe clusterqueue") for name, each in found.items())
    local = scope.listed(LOCAL_QUEUES.format(namespace))
    for each in local:
        subject, name = f"LocalQueue {each['metadata']['name']}", each["spec"].get("clusterQueue", "")
        if name in found:
            yield _open(subject, each, f"kubectl describe localqueue -n {namespace}")
        else:
            yield failed(subject, f"its ClusterQueue {name!r} does not exist", "create it, or correct the LocalQueue")
    if not local:
        said = f"namespace {namespace} has no LocalQueue, so Kueue admits no job there"
        yield failed("LocalQueues", said, "create a LocalQueue, or pass another --namespace")


def _open(subject: str, queue: Json, fix: str) -> Check:
    if is_stopped(queue):
        said = f"admits no job, because its stopPolicy is {queue['spec']['stopPolicy']}"
        return failed(subject, said, "remove stopPolicy to open it")
    return _active(subject, queue, fix)


def submission(scope: Scope) -> Findings:
    """Check with a dry run that the cluster accepts a job."""
    for ref in scope.up.jobs:
        subject, path = f"a job in {ref.namespace}", JOBSETS.format(ref.namespace)
        try:
            scope.api.request("POST", path, _small(ref.queue), {"dryRun": "All"})
        except ApiError as error:
            if error.status == 403 and "webhook" not in str(error):
                raise
            yield failed(subject, str(error), "see the controllers above: kubectl get pods -n kueue-system")
        else:
            yield ok(subject, "would be accepted")


def waiting(scope: Scope) -> Findings:
    """Report which jobs are waiting, and for what."""
    for namespace in sorted({ref.namespace for ref in scope.up.jobs}):
        workloads = scope.listed(WORKLOADS.format(namespace))
        waits = [each for each in workloads if not is_true(each, "QuotaReserved") and not is_true(each, "Finished")]
        reasons = {each["metadata"]["name"]: condition(each, "QuotaReserved").get("message") for each in waits}
        why = "; ".join(f"{name}: {reason or 'Kueue has not checked it yet'}" for name, reason in reasons.items())
        yield ok(f"namespace {namespace}", f"{len(waits)} waiting: {why}" if waits else "no job is waiting")


def _active(subject: str, found: Json, fix: str) -> Check:
    active = condition(found, "Active")
    if active.get("status") == "True":
        return ok(subject, active.get("message", "active"))
    return failed(subject, active.get("message", "Kueue has not checked it yet"), fix)


def _small(queue: str) -> Json:
    """Return a JobSet of one pod with one chip, because the cluster refuses jobs without chips."""
    container = {"name": "main", "image": "busybox", "resources": {"limits": {TPU_RESOURCE: "1"}}}
    pod = {"restartPolicy": "Never", "containers": [container]}
    job = {"parallelism": 1, "completions": 1, "template": {"spec": pod}}
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": "tried-by-doctor", "labels": {QUEUE_LABEL: queue}},
        "spec": {"replicatedJobs": [{"name": "host", "template": {"spec": job}}]},
    }


def slices(scope: Scope) -> Findings:
    """Check that each slice has all its hosts and that all of them are usable."""
    foreign = scope.up.foreign
    pools = _slices_of(scope.listed(f"{NODES}?labelSelector={ACCELERATOR_LABEL}" if foreign else NODES))
    if not foreign:
        yield from _check_hostless(scope, pools)
    elif not pools:
        yield skipped("slices", "the cluster has no TPU node now")
    hosts = {name: group.shape.hosts for name, group in scope.settings.slices.items()} if scope.settings else {}
    for name, nodes in sorted(pools.items()):
        yield _check_slice(f"slice {name}", nodes, hosts)
    # A trainer can mark any node that it runs on, so more slices may be marked than hardware explains.
    marked = [name for name, nodes in sorted(pools.items()) if any(_mark(node) for node in nodes)]
    if len(marked) > 1 and not foreign:
        found = f"{len(marked)} of {len(pools)} slices are marked as bad: {', '.join(marked)}"
        fix = f"compare the annotation {BAD_HOST_KEY} of their nodes: one image or one job may have marked all of them"
        yield failed("bad hosts", found, fix)


def _slices_of(nodes: Iterable[Json]) -> Mapping[str, list[Json]]:
    pools: defaultdict[str, list[Json]] = defaultdict(list)
    for node in nodes:
        if ACCELERATOR_LABEL in node["metadata"]["labels"]:
            pools[node["metadata"]["labels"].get(NODE_POOL_LABEL, "without a node pool")].append(node)
    return pools


def pools(scope: Scope) -> Findings:
    """Check the state of the node pools in GKE."""
    google = scope.in_google()
    cluster = scope.up.outputs["cluster"]
    location = scope.up.outputs.get("location", google.region)
    path = f"/v1/projects/{google.project}/locations/{location}/clusters/{cluster}/nodePools"
    for pool in google.get("container", path).get("nodePools", []):
        subject, status = f"pool {pool['name']}", pool.get("status", "unknown")
        words = [each.get("message", "") for each in pool.get("conditions", [])] or [pool.get("statusMessage", "")]
        if status in ("RUNNING", "RECONCILING", "PROVISIONING"):
            yield ok(subject, status.lower())
        elif status == "ERROR":
            resource = "cluster-system" if pool["name"] == SYSTEM_POOL else f"slices-{pool['name']}"
            fix = f"pause the jobs on it, then recreate it: {scope.update(*replacing(resource))}"
            yield failed(subject, f"{status}: {'; '.join(words)}", fix)
        else:
            yield failed(subject, f"{status}: {'; '.join(words)}", "wait: GKE is creating, deleting or repairing it")


def _check_hostless(scope: Scope, pools: Collection[str]) -> Findings:
    """Check the slices without a node, that is, those that are not in `pools`."""
    hostless = find_hostless(scope.up.outputs, pools)
    fix = f"see pools; `{scope.update('--refresh')}`"
    for name, topology in (hostless or {}).items():
        taken = "spot capacity that Google took back returns without any action"
        yield failed(f"slice {name}", f"has no hosts; topology {topology}", f"{fix}; {taken}")
    if not pools and hostless is None:
        yield failed("slices", "the cluster has no TPU node", fix)
    elif not pools and not hostless:
        yield ok("slices", "the cluster has no TPU node, because all slices are created on request")


def _check_slice(subject: str, nodes: list[Json], hosts: Mapping[str, int]) -> Check:
    """Return whether a slice has all its hosts and all are usable; `hosts` has their numbers by slice group."""
    marks = {_name(node): mark for node in nodes if (mark := _mark(node))}
    cordoned = [_name(node) for node in nodes if node["spec"].get("unschedulable")]
    silent = [_name(node) for node in nodes if not is_true(node, "Ready")]
    wanted = hosts.get(nodes[0]["metadata"]["labels"].get(SLICE_GROUP_LABEL, ""), len(nodes))
    if silent:
        why = condition(next(node for node in nodes if _name(node) in silent), "Ready").get("message", "no message")
        return failed(subject, f"not ready: {', '.join(silent)}: {why}", f"kubectl describe node {silent[0]}")
    if marks:
        since = min((mark["timeAdded"] for mark in marks.values() if "timeAdded" in mark), default="an unknown time")
        found = f"marked as bad hosts since {since}: {', '.join(marks)}"
        return failed(subject, found, f"once they work again: kubectl taint nodes {' '.join(marks)} {BAD_HOST_KEY}-")
    if cordoned:
        return failed(subject, f"cordoned: {', '.join(cordoned)}", f"kubectl uncordon {' '.join(cordoned)}")
    if len(nodes) < wanted:
        return failed(subject, f"{len(nodes)} of {wanted} hosts exist", "see the pools: GKE creates whole slices")
    return ok(subject, f"all {len(nodes)} hosts are ready")


def _mark(node: Json) -> Json | None:
    return next((taint for taint in node["spec"].get("taints", []) if taint["key"] == BAD_HOST_KEY), None)


def _name(node: Json) -> str:
    return node["metadata"]["name"]

"""What must hold of a slice as a whole: its shape, its hosts, its place."""

from collections.abc import Iterator, Sequence

from policy.resources import NODE_POOL, WORKLOAD_POLICY, at, every, of_type
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import TpuPool, is_tpu, of_slices, shape, tpu_pools

_TPUS = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus"
_POOLS = "https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"


def _offered(pool: Declared) -> Iterator[str]:
    if is_tpu(pool):
        try:
            shape(pool)
        except ValueError as fault:
            yield f"expected a slice that GKE offers; {fault}"


def _placed(pool: TpuPool) -> Iterator[str]:
    placement = at(pool.resource.properties, "placementPolicy")
    if not pool.shape.multi_host:
        if placement is not None:
            yield f"expected no placementPolicy for a single host ({pool.shape.topology}), got {dict(placement)}"
    elif pool.shape.workload_policy_required:
        yield from _placed_by_workload_policy(pool)
    elif (kind := at(placement, "type")) != "COMPACT":
        yield f"expected placementPolicy.type COMPACT for {pool.shape.hosts} hosts, got {kind!r}"


def _placed_by_workload_policy(pool: TpuPool) -> Iterator[str]:
    placement = at(pool.resource.properties, "placementPolicy")
    if not at(placement, "policyName"):
        yield f"expected placementPolicy.policyName of a workload policy for {pool.shape.machine_type}, got none"
    if at(placement, "type") and "placementPolicy.type" not in pool.resource.ignored_changes:
        yield "expected an empty placementPolicy.type, which GKE does not keep beside a policy, got " + repr(
            at(placement, "type")
        )


def _workload_policies(resources: Sequence[Declared]) -> Iterator[Broken]:
    policies = {
        at(policy.properties, "name"): at(policy.properties, "workloadPolicy", "acceleratorTopology")
        for policy in of_type(resources, WORKLOAD_POLICY)
    }
    for pool in tpu_pools(resources):
        name = at(pool.resource.properties, "placementPolicy", "policyName")
        if name is not None and name in policies and policies[name] != pool.shape.topology:
            says = f"expected workload policy {name!r} to be of {pool.shape.topology}, got {policies[name]!r}"
            yield Broken(says, pool.resource.urn)


def _hosts(pool: TpuPool) -> Iterator[str]:
    count, scaling = (at(pool.resource.properties, key) for key in ("nodeCount", "autoscaling"))
    hosts = pool.shape.hosts
    if scaling is None:
        if count != hosts:
            yield f"expected nodeCount {hosts}, the hosts of a {pool.shape.topology} slice, got {count}"
        return
    if count is not None:
        yield f"expected autoscaling or nodeCount, got both (nodeCount {count})"
    least, most = (at(scaling, key) for key in ("minNodeCount", "maxNodeCount"))
    if least or most != hosts:
        yield f"expected autoscaling from minNodeCount 0 to maxNodeCount {hosts}, got {least or 0} to {most}"
    if at(scaling, "totalMaxNodeCount"):
        yield "expected limits per zone, since GKE holds a slice against those alone, got totalMaxNodeCount"


def _one_zone(pool: TpuPool) -> Iterator[str]:
    zones = every(pool.resource.properties, "nodeLocations")
    if len(zones) != 1:
        yield f"expected one zone in nodeLocations, got {', '.join(zones) or 'none'}"


def _upgraded_in_place(pool: TpuPool) -> Iterator[str]:
    upgrade = at(pool.resource.properties, "upgradeSettings")
    if pool.flex_start:
        if upgrade is not None:
            yield f"expected no upgradeSettings on flex-start, where GKE keeps its own, got {dict(upgrade)}"
        return
    got = tuple(at(upgrade, key) for key in ("strategy", "maxSurge", "maxUnavailable"))
    if got[0] != "SURGE" or got[1] != 0 or not got[2]:
        yield f"expected upgradeSettings SURGE with maxSurge 0 and maxUnavailable 1 or more, got {got}"


def _deleted_first(pool: Declared) -> Iterator[str]:
    if is_tpu(pool) and not pool.delete_before_replace:
        yield "expected the option deleteBeforeReplace, got none"


def _labels_agree(pool: TpuPool) -> Iterator[str]:
    declared = at(pool.resource.properties, "nodeConfig", "labels") or {}
    for key, value in declared.items():
        if pool.labels[key] != value:
            yield f"expected node label {key}={pool.labels[key]}, which GKE sets, got {value!r}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "slice-offered",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "GKE offers the slice",
            "GKE refuses any other machine type or topology, after the cluster was made and billed.",
            "Choose generation, topology and machine_type of the slice group from the table of TPUs.",
            _TPUS,
        ),
        (NODE_POOL,),
        _offered,
    ),
    ResourceRule(
        About(
            "slice-placement",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "Hosts of one slice are placed together, and a single host is not placed at all",
            "Without COMPACT and a topology, or on 7x a workload policy, hosts are not wired together by ICI; GKE"
            " refuses a placement of a single host.",
            "Declare placementPolicy by infra.slices from the slice group's topology; write nothing else there.",
            _POOLS,
        ),
        (NODE_POOL,),
        of_slices(_placed),
    ),
    StackRule(
        About(
            "workload-policy-topology",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A slice and its workload policy have the same topology",
            "GKE puts a pool whose policy has another topology into the state ERROR, and it stays there.",
            "Take policy and pools of a slice group from one topology, which is part of the policy's name.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood",
        ),
        _workload_policies,
    ),
    ResourceRule(
        About(
            "slice-hosts",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A slice has all of its hosts, or none of them until a job needs them",
            "A managed instance group of a slice refuses any other size than the hosts of its topology.",
            "Leave the number of nodes to the slice group's topology and capacity.",
            _TPUS,
        ),
        (NODE_POOL,),
        of_slices(_hosts),
    ),
    ResourceRule(
        About(
            "slice-zone",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A slice lies in one zone",
            "ICI does not cross zones: GKE refuses a compact pool of several, and one of none lands in every zone of"
            " the cluster, with its hosts billed in each.",
            "Set cloud.zone, or slices.NAME.zone, to the zone that has the chips.",
            _POOLS,
        ),
        (NODE_POOL,),
        of_slices(_one_zone),
    ),
    ResourceRule(
        About(
            "slice-upgrade",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "An upgrade needs no chips beyond those of the slice",
            "A surge or blue-green upgrade asks for hosts that a slice of fixed size cannot have, and hangs.",
            "Keep upgradeSettings SURGE with maxSurge 0 and maxUnavailable 1, and none on flex-start pools.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies",
        ),
        (NODE_POOL,),
        of_slices(_upgraded_in_place),
    ),
    ResourceRule(
        About(
            "slice-deleted-first",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A slice that is replaced is deleted before the new one is made",
            "Name and chips of a slice are its own: the new one waits for those that the old one holds until it fails.",
            "Set delete_before_replace=True on the node pool.",
            "https://www.pulumi.com/docs/iac/concepts/resources/options/deletebeforereplace/",
        ),
        (NODE_POOL,),
        _deleted_first,
    ),
    ResourceRule(
        About(
            "slice-labels",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "No label of a slice contradicts those that GKE sets",
            "Jobs and queues find a slice by accelerator and topology; a label that says otherwise hides it from them.",
            "Remove the labels of accelerator, topology and node pool from the pool.",
            _POOLS,
        ),
        (NODE_POOL,),
        of_slices(_labels_agree),
    ),
)

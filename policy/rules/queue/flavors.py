"""What must hold of the flavors by which Kueue knows the slices."""

from collections.abc import Iterator, Sequence

from infra.names import TPU_RESOURCE
from policy.kueue import chip_quotas, flavor_names, flavors
from policy.resources import object_name, of_kind
from policy.rule import About, Broken, Declared, Group, Level, Rule, Severity, StackRule
from policy.slices import QUEUED_LABEL, tpu_pools

_FLAVOR = "https://kueue.sigs.k8s.io/docs/concepts/resource_flavor/"


def _existing(resources: Sequence[Declared]) -> Iterator[Broken]:
    existing = {flavor.name for flavor in flavors(resources)}
    for queue in of_kind(resources, "ClusterQueue"):
        for name in flavor_names(queue):
            if name not in existing:
                got = ", ".join(sorted(existing)) or "none"
                yield Broken(f"expected flavor {name!r} of {object_name(queue)!r} in the stack, got {got}", queue.urn)


def _of_slices(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = tpu_pools(resources)
    with_chips = {quota.flavor for quota in chip_quotas(resources)}
    for flavor in flavors(resources):
        counted = [pool for pool in pools if flavor.counts(pool)]
        kinds = {f"{pool.shape.machine_type} {pool.shape.topology}" for pool in counted}
        if flavor.name in with_chips and len(kinds) != 1:
            got = ", ".join(sorted(kinds)) or "none"
            yield Broken(f"expected node labels of slices of one kind, got those of {got}", flavor.resource.urn)


def _counted_once(resources: Sequence[Declared]) -> Iterator[Broken]:
    known = flavors(resources)
    for pool in tpu_pools(resources) if known else ():
        names = [flavor.name for flavor in known if flavor.counts(pool)]
        if len(names) != 1:
            got = ", ".join(names) or "none"
            yield Broken(f"expected one flavor with the labels of this slice's nodes, got {got}", pool.resource.urn)


def _taints(resources: Sequence[Declared]) -> Iterator[Broken]:
    pools = tpu_pools(resources)
    for flavor in flavors(resources):
        counted = [pool for pool in pools if flavor.counts(pool)]
        expected = {TPU_RESOURCE} if counted else set[str]()
        expected |= {QUEUED_LABEL} if any(pool.queued for pool in counted) else set()
        if missing := sorted(expected - flavor.taints):
            yield Broken(f"expected the nodes' taints {', '.join(missing)}, got none", flavor.resource.urn)


def _topologies(resources: Sequence[Declared]) -> Iterator[Broken]:
    topologies = {object_name(topology) for topology in of_kind(resources, "Topology")}
    for flavor in flavors(resources):
        name = flavor.topology_name
        if name is not None and name not in topologies:
            got = ", ".join(sorted(topologies)) or "none"
            yield Broken(f"expected topology {name!r} in the stack, got {got}", flavor.resource.urn)


RULES: tuple[Rule, ...] = (
    StackRule(
        About(
            "flavor-exists",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "Each flavor that a queue gives out exists",
            "A ClusterQueue with an unknown flavor is inactive: no job of its team is admitted.",
            "Name slice groups of the stack in teams.TEAM.quota.",
            _FLAVOR,
        ),
        _existing,
    ),
    StackRule(
        About(
            "flavor-topology-exists",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "Each topology that a flavor names exists",
            "Kueue cannot place a job on such a flavor; its queues are inactive.",
            "Set scheduling.placement for the whole stack, which declares the topology.",
            "https://kueue.sigs.k8s.io/docs/concepts/topology_aware_scheduling/",
        ),
        _topologies,
    ),
    StackRule(
        About(
            "flavor-of-one-kind",
            Group.QUEUE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A flavor's node labels are those of slices of one kind",
            "Kueue would admit jobs for chips that no node has, or send a job to slices of another shape.",
            "Take the flavor's labels from its slice group: accelerator, topology and group.",
            _FLAVOR,
        ),
        _of_slices,
    ),
    StackRule(
        About(
            "slice-counted-once",
            Group.QUEUE,
            Severity.HIGH,
            Level.MANDATORY,
            "Each slice is counted by exactly one flavor",
            "Chips that two flavors count are promised twice; those of none are billed and never given out.",
            "Keep the label slice-group on the nodes and in the flavor.",
            _FLAVOR,
        ),
        _counted_once,
    ),
    StackRule(
        About(
            "flavor-taints",
            Group.QUEUE,
            Severity.MEDIUM,
            Level.MANDATORY,
            "A flavor has the taints of its nodes",
            "Kueue compares them with a job's tolerations before it admits it; without them it admits jobs whose pods"
            " then never start, and their chips are held.",
            "Let infra.queues render the flavor from the slice group.",
            _FLAVOR,
        ),
        _taints,
    ),
)

"""What must hold of node pools, for upgrades and failures of their machines."""

from collections.abc import Iterator, Sequence

from policy.resources import NODE_POOL, at, every, of_type, switched_on
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import TpuPool, is_tpu, of_slices

_LEAST_SYSTEM_NODES = 2
_UPGRADES = "https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-upgrades"


def _repaired(pool: Declared) -> Iterator[str]:
    repaired = switched_on(pool.properties, "management", "autoRepair", unsaid=True)
    if not repaired and not at(pool.properties, "nodeConfig", "flexStart"):
        yield "expected management.autoRepair to be true but for flex-start, got false"


def _upgraded(pool: Declared) -> Iterator[str]:
    if not switched_on(pool.properties, "management", "autoUpgrade", unsaid=True):
        yield "expected management.autoUpgrade to be true, got false"
    if (version := at(pool.properties, "version")) is not None:
        yield f"expected no version beside autoUpgrade, got {version!r}"


def _not_interrupted(pool: TpuPool) -> Iterator[str]:
    exclusions = [
        at(exclusion, "enabled")
        for policy in every(pool.resource.properties, "maintenancePolicies")
        for exclusion in every(policy, "exclusionUntilEndOfSupports")
    ]
    if not any(exclusions):
        yield "expected maintenancePolicies with exclusionUntilEndOfSupports, got none"


def _system_nodes(resources: Sequence[Declared]) -> Iterator[Broken]:
    for pool in of_type(resources, NODE_POOL):
        count = at(pool.properties, "nodeCount")
        if not is_tpu(pool) and count is not None and count < _LEAST_SYSTEM_NODES:
            yield Broken(
                f"expected {_LEAST_SYSTEM_NODES} or more nodes for the controllers, got {int(count)}", pool.urn
            )


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "auto-repair",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "Broken nodes are replaced",
            "A slice with one dead host cannot run anything and is billed until a person notices (CKV_GCP_9).",
            "Leave management.autoRepair on; flex-start alone must be without.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/node-auto-repair",
        ),
        (NODE_POOL,),
        _repaired,
    ),
    ResourceRule(
        About(
            "auto-upgrade",
            Group.RELIABILITY,
            Severity.MEDIUM,
            Level.ADVISORY,
            "Nodes follow the control plane's version",
            "Nodes that stay behind lose security fixes, then support, and a pinned version fights every upgrade"
            " (CKV_GCP_10).",
            "Leave management.autoUpgrade on and version out; exclusions choose the time.",
            _UPGRADES,
        ),
        (NODE_POOL,),
        _upgraded,
    ),
    ResourceRule(
        About(
            "slice-not-interrupted",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "No upgrade interrupts a slice while its version is supported",
            "An upgrade of one host recreates the whole slice: every job on it restarts. It must be there when the"
            " pool is made, for the provider drops a later change.",
            "Keep maintenancePolicies with exclusionUntilEndOfSupports on the pools of slices.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions",
        ),
        (NODE_POOL,),
        of_slices(_not_interrupted),
    ),
    StackRule(
        About(
            "system-nodes",
            Group.RELIABILITY,
            Severity.MEDIUM,
            Level.ADVISORY,
            "Kueue and JobSet have a second node to go to",
            "While the only node is repaired or upgraded, nothing is admitted and no failed job restarts.",
            "Set cluster.system_nodes to 2 or more.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/planning-large-workloads",
        ),
        _system_nodes,
    ),
)

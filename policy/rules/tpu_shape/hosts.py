"""What must hold of the machines of a slice: disks, network interfaces, what TPU machines cannot have."""

from collections.abc import Iterator, Sequence

from policy.resources import CLUSTER, NODE_POOL, at, every, of_type
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import TpuPool, of_slices, tpu_pools

_NOT_ON_TPUS = (
    "guestAccelerators",
    "localSsdCount",
    "ephemeralStorageLocalSsdConfig",
    "localNvmeSsdBlockConfig",
    "confidentialNodes",
    "fastSocket",
    "sandboxConfig",
)
"""Of `nodeConfig`."""
_MULTI_NETWORK = "https://cloud.google.com/kubernetes-engine/docs/how-to/setup-multinetwork-support-for-pods"


def _boot_disk(pool: TpuPool) -> Iterator[str]:
    config = at(pool.resource.properties, "nodeConfig")
    got = at(config, "bootDisk", "diskType") or at(config, "diskType")
    if got is not None and got not in pool.shape.boot_disk_types:
        yield f"expected a boot disk of {' or '.join(pool.shape.boot_disk_types)}, got {got}"


def _nothing_foreign(pool: TpuPool) -> Iterator[str]:
    config = at(pool.resource.properties, "nodeConfig")
    if found := [key for key in _NOT_ON_TPUS if at(config, key)]:
        yield f"expected nothing that TPU machines do not have, got {', '.join(found)}"


def _own_interface(pool: TpuPool) -> Iterator[str]:
    config = at(pool.resource.properties, "nodeConfig")
    if not at(config, "gvnic", "enabled"):
        yield "expected gvnic to be enabled, got nothing or false"
    if every(config, "secondaryBootDisks") and not at(config, "gcfsConfig", "enabled"):
        yield "expected gcfsConfig to be enabled for disks with images, got nothing or false"


def _interfaces(pool: TpuPool) -> list[object]:
    return every(pool.resource.properties, "networkConfig", "additionalNodeNetworkConfigs")


def _second_network(pool: TpuPool) -> Iterator[str]:
    more = len(_interfaces(pool))
    if more > pool.shape.accelerator_nics:
        has = pool.shape.accelerator_nics or "no"
        yield f"expected at most the {has} further interfaces of {pool.shape.machine_type}, got {more} further networks"


def _several_networks(resources: Sequence[Declared]) -> Iterator[Broken]:
    asking = [pool for pool in tpu_pools(resources) if _interfaces(pool)]
    for cluster in of_type(resources, CLUSTER):
        if asking and not at(cluster.properties, "enableMultiNetworking"):
            names = ", ".join(pool.resource.name for pool in asking)
            yield Broken(f"expected enableMultiNetworking for the second network of {names}, got false", cluster.urn)


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "slice-boot-disk",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "The machines take the boot disk",
            "Compute Engine refuses a machine with a disk type that its series does not have, when the pool is made.",
            "Leave the disk's type to the slice group's generation.",
            "https://cloud.google.com/compute/docs/disks/hyperdisks",
        ),
        (NODE_POOL,),
        of_slices(_boot_disk),
    ),
    ResourceRule(
        About(
            "slice-features",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A slice asks for nothing that TPU machines do not have",
            "GPUs, local disks, confidential nodes and sandboxes are refused on TPU machines, when the pool is made.",
            "Remove the fields from the node pool.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/tpus",
        ),
        (NODE_POOL,),
        of_slices(_nothing_foreign),
    ),
    ResourceRule(
        About(
            "slice-interface",
            Group.TPU_SHAPE,
            Severity.MEDIUM,
            Level.MANDATORY,
            "Hosts have the interface and the image streaming that they need",
            "Without gVNIC traffic between slices stays far below what the machine can do; disks with images are not"
            " read without image streaming.",
            "Enable gvnic and gcfsConfig on the node pool.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/using-gvnic",
        ),
        (NODE_POOL,),
        of_slices(_own_interface),
    ),
    ResourceRule(
        About(
            "second-network",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A slice uses a second network only where its machines have the interface",
            "The machine cannot be made with more networks than it has interfaces.",
            "Remove slices.GROUP.second_network or choose v6e or 7x.",
            _MULTI_NETWORK,
        ),
        (NODE_POOL,),
        of_slices(_second_network),
    ),
    StackRule(
        About(
            "several-networks",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A cluster whose slices use a second network allows several",
            "GKE refuses the node pools of such slices.",
            "Set enableMultiNetworking on the cluster; it needs Dataplane V2.",
            _MULTI_NETWORK,
        ),
        _several_networks,
    ),
)

"""The node pools of a plan that are TPU slices.

Owns how a pool says which slice it is: by its machine type and its topology. What is wrong with a
pool is the business of the rules.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from infra.tpu import SliceShape, all_shapes, shape_of
from policy.resources import NODE_POOL, at, of_type
from policy.rule import Declared

NODE_POOL_LABEL = "cloud.google.com/gke-nodepool"
QUEUED_LABEL = "cloud.google.com/gke-queued"
"""Node label of queued capacity, and key of the taint that GKE itself gives such nodes."""

_MACHINE_PREFIXES = ("ct", "tpu")
"""Of all machine types with TPUs, known to the table or not."""


@dataclass(frozen=True)
class TpuPool:
    """A node pool and the slice that it is."""

    resource: Declared
    shape: SliceShape

    @property
    def labels(self) -> dict[str, str]:
        """Labels of its nodes, those that GKE sets among them."""
        return {
            **(at(self.resource.properties, "nodeConfig", "labels") or {}),
            NODE_POOL_LABEL: at(self.resource.properties, "name"),
            "cloud.google.com/gke-tpu-accelerator": self.shape.accelerator,
            "cloud.google.com/gke-tpu-topology": self.shape.topology,
        }

    @property
    def flex_start(self) -> bool:
        """Queued or not."""
        return bool(at(self.resource.properties, "nodeConfig", "flexStart"))

    @property
    def queued(self) -> bool:
        return bool(at(self.resource.properties, "queuedProvisioning", "enabled"))

    @property
    def spot(self) -> bool:
        """Or preemptible, its name of old."""
        return any(at(self.resource.properties, "nodeConfig", key) for key in ("spot", "preemptible"))

    @property
    def reservation_type(self) -> str | None:
        """How it takes from reservations."""
        return at(self.resource.properties, "nodeConfig", "reservationAffinity", "consumeReservationType")

    @property
    def on_demand(self) -> bool:
        """Billed as long as it stands, at the full price."""
        return not (self.flex_start or self.spot or self.reservation_type == "SPECIFIC_RESERVATION")


def is_tpu(pool: Declared) -> bool:
    """Whether the machines of a node pool have TPUs."""
    machine_type = at(pool.properties, "nodeConfig", "machineType")
    return machine_type is not None and machine_type.startswith(_MACHINE_PREFIXES)


def shape(pool: Declared) -> SliceShape:
    """The slice that a TPU pool says it is; without a topology it is one of a single host.

    Raises:
        ValueError: GKE does not offer it; the message lists what it offers instead.
    """
    machine_type = at(pool.properties, "nodeConfig", "machineType")
    topology = at(pool.properties, "placementPolicy", "tpuTopology")
    return _shape(machine_type, topology)


def tpu_pools(resources: Iterable[Declared]) -> list[TpuPool]:
    """The slices of a plan, without those that GKE does not offer, of which a rule of their own tells."""
    found = (_tpu_pool(pool) for pool in of_type(resources, NODE_POOL) if is_tpu(pool))
    return [pool for pool in found if pool]


def of_slices(check: Callable[[TpuPool], Iterable[str]]) -> Callable[[Declared], Iterator[str]]:
    """A check of slices as one of node pools, which leaves out all others."""

    def checked(resource: Declared) -> Iterator[str]:
        for pool in tpu_pools([resource]):
            yield from check(pool)

    return checked


def _tpu_pool(pool: Declared) -> TpuPool | None:
    try:
        return TpuPool(pool, shape(pool))
    except ValueError:
        return None


@cache
def _shape(machine_type: str, topology: str | None) -> SliceShape:
    """Looked up once: each rule asks for all slices of a plan."""
    alone = (each.topology for each in all_shapes() if each.machine_type == machine_type and not each.multi_host)
    return shape_of(machine_type, topology or next(alone, ""))

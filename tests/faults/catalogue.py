"""The catalogue of faults, by affected component."""

from collections.abc import Mapping

from tests.faults import cluster, damage, hosts, queue, storage
from tests.faults.fault import Fault

GROUPS: Mapping[str, tuple[Fault, ...]] = {
    "Hosts": hosts.HOSTS,
    "The trainer": hosts.TRAINER,
    "The start": hosts.STARTS,
    "A save": storage.SAVES,
    "Files of checkpoints": storage.FILES,
    "Storage": storage.STORE,
    "Wrong numbers, and a second writer": damage.DAMAGE,
    "Nodes": cluster.NODES,
    "The queue": queue.QUEUE,
    "The control plane": cluster.CONTROL_PLANE,
    "Limits of the job": queue.LIMITS,
}
"""The faults by affected component. Keys are titles in the documentation."""

CATALOGUE: tuple[Fault, ...] = tuple(fault for faults in GROUPS.values() for fault in faults)

"""The catalogue of faults, by affected component."""

from collections.abc import Mapping

from chaos.faults import cluster, damage, hosts, queue, slices, storage
from chaos.target import Fault

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
    "Slices that the others train on without": slices.LOST,
    "The return of a slice": slices.RETURNS,
}
"""The faults by affected component. Keys are titles of the report."""

CATALOGUE: tuple[Fault, ...] = tuple(fault for faults in GROUPS.values() for fault in faults)

"""The catalogue of faults, by what they strike."""

from collections.abc import Mapping

from chaos.fault import Fault
from chaos.faults import (
    control_plane,
    damage,
    files,
    limits,
    nodes,
    process,
    queue,
    saves,
    starts,
    storage,
    trainer,
)

GROUPS: Mapping[str, tuple[Fault, ...]] = {
    "Hosts": process.FAULTS,
    "The trainer": trainer.FAULTS,
    "The start": starts.FAULTS,
    "A save": saves.FAULTS,
    "Files of checkpoints": files.FAULTS,
    "Storage": storage.FAULTS,
    "Wrong numbers, and a second writer": damage.FAULTS,
    "Nodes": nodes.FAULTS,
    "The queue": queue.FAULTS,
    "The control plane": control_plane.FAULTS,
    "Limits of the job": limits.FAULTS,
}
"""The faults by what they strike, as a title says it."""

CATALOGUE: tuple[Fault, ...] = tuple(fault for faults in GROUPS.values() for fault in faults)

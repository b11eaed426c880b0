"""The catalogue of faults, by what they strike."""

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

CATALOGUE: tuple[Fault, ...] = (
    *process.FAULTS,
    *trainer.FAULTS,
    *starts.FAULTS,
    *saves.FAULTS,
    *files.FAULTS,
    *storage.FAULTS,
    *damage.FAULTS,
    *nodes.FAULTS,
    *queue.FAULTS,
    *control_plane.FAULTS,
    *limits.FAULTS,
)

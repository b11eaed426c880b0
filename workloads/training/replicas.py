"""Whether all slices still hold the same state.

Owns the comparison of replicas and which slices a difference names. When to compare is up to `loop`.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from workloads.spec import SliceSpec
from workloads.training.failures import ReplicasDiffer
from workloads.training.fingerprint import Fingerprints, differing


class Replicas:
    """The replicas of one mesh, and the slices that each of them lies on."""

    def __init__(self, devices: np.ndarray, slices: SliceSpec):
        """`devices` is [replica, ...], as in the mesh."""
        self._slices = [
            sorted({device.process_index // slices.hosts for device in replica.flat}) for replica in devices
        ]

    @property
    def several(self) -> bool:
        """Whether there is anything to compare."""
        return len(self._slices) > 1

    def agreed(self, step: int, found: Sequence[Fingerprints]) -> Fingerprints:
        """What all replicas hold after `step`, where `found` is what each of them holds.

        Raises:
            ReplicasDiffer: they do not hold the same.
        """
        expected, count = Counter(tuple(one.items()) for one in found).most_common(1)[0]
        if wrong := differing(dict(expected), found):
            suspects = [index for index, one in enumerate(found) if tuple(one.items()) != expected]
            if 2 * count <= len(found):
                suspects = list(range(len(found)))
            raise ReplicasDiffer(self._text(step, suspects, wrong))
        return dict(expected)

    def _text(self, step: int, suspects: Sequence[int], wrong: Sequence[str]) -> str:
        named = sorted({slice_ for replica in suspects for slice_ in self._slices[replica]})
        arrays = wrong[0] if len(wrong) == 1 else f"{wrong[0]} and {len(wrong) - 1} more"
        plural = "s" if len(named) > 1 else ""
        return (
            f"step {step}: all slices must hold the same, but slice{plural} {' or '.join(map(str, named))} computed"
            f" wrongly: {arrays}; nothing of it is saved, the next start goes on from the last checkpoint"
        )

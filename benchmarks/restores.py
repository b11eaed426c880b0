"""Calculates the bytes and the time of a restore by the number of slices: `python -m benchmarks.restores`.

These are not measurements. The bytes are those of the training state. The rates are the assumptions below, and the rate
of a chip between slices is that of the preflight.
"""

from dataclasses import dataclass

from infra.submission import slice_spec
from infra.tpu import resolve
from workloads.spec import SliceSpec, load_preset
from workloads.spec.chips import dcn_bytes_per_second
from workloads.spec.parameters import total_parameters

BUCKET_BYTES_PER_SECOND = 25e9
"""ASSUMED rate of all hosts together: 200 Gbit/s, which a project can request to raise
(https://cloud.google.com/storage/docs/bandwidth-usage)."""
HOST_BYTES_PER_SECOND = 2e9
"""ASSUMED rate of one host that reads many objects at the same time."""
STATE_BYTES_PER_WEIGHT = 12
"""Bytes of a weight and AdamW's two moments in float32."""
_DESIGNS = (("llama-3.1-8b", "v6e", "4x4"), ("llama-3.1-70b", "v6e", "16x16"))
_COUNTS = (2, 4, 16, 64)


@dataclass(frozen=True)
class Restore:
    """A restore of `state_bytes` on slices with one replica each."""

    state_bytes: int
    slices: SliceSpec

    @property
    def everyone_seconds(self) -> float:
        """Time if every replica reads."""
        return self._reading(self.slices.count)

    @property
    def once_seconds(self) -> float:
        """Time if one replica reads and an all-reduce sends the state to the others, nearly all of it twice."""
        sent = 2 * (self.slices.count - 1) / self.slices.count * self.state_bytes / self.slices.devices_per_slice
        return self._reading(1) + sent / dcn_bytes_per_second(self.slices)

    def _reading(self, replicas: int) -> float:
        alone = self.state_bytes / self.slices.hosts / HOST_BYTES_PER_SECOND
        return max(alone, replicas * self.state_bytes / BUCKET_BYTES_PER_SECOND)


def row(preset: str, generation: str, topology: str, count: int) -> str:
    """Return a line of the table."""
    state = STATE_BYTES_PER_WEIGHT * total_parameters(load_preset(preset).model)
    one = Restore(state, slice_spec(resolve(generation, topology), count))
    read = [f"{bytes_ / 1e12:.2f}" for bytes_ in (count * state, state)]
    seconds = [f"{one.everyone_seconds:.0f}", f"{one.once_seconds:.0f}"]
    return f"| {preset} | {count} x {generation} {topology} | {' | '.join([*read, *seconds])} |"


def main() -> None:
    """Print the table."""
    print(
        "| model | slices | TB read by every replica | by one | s, every replica | s, one |\n|---|---|---|---|---|---|"
    )
    for design in _DESIGNS:
        for count in _COUNTS:
            print(row(*design, count))


if __name__ == "__main__":
    main()

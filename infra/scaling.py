"""A step that was compiled for some slices, on more or fewer of them.

Owns the law: each chip does the same work, so the batch grows with the slices, and a step differs by what it waits for
other slices. Their bytes are taken to go round a ring at the rate of the hosts' network interfaces, and those beyond
what was compiled to be hidden by nothing. Latency and the slices' different pace are left out. Pure.
"""

from dataclasses import dataclass
from functools import cached_property

from infra.accelerators import SliceShape, resolve
from infra.preflights import CompiledStep, Design
from workloads.preflight_result import QUOTED_EFFICIENCY


@dataclass(frozen=True)
class ScaledStep:
    """A design that fits, on any number of slices."""

    design: Design
    step: CompiledStep

    @cached_property
    def shape(self) -> SliceShape:
        """One slice."""
        return resolve(self.design.generation, self.design.topology)

    @property
    def batch_tokens(self) -> int:
        """Of one slice."""
        return self.shape.chips * self.design.sequences_per_chip * self.design.sequence_length

    def most_slices(self, most_batch_tokens: int) -> int:
        """That such a batch allows and the design tells of; none when one is too many."""
        allowed = most_batch_tokens // self.batch_tokens
        # A program for one slice holds no transfers to others.
        joined = self.shape.multi_host and self.design.slices > 1
        return allowed if joined else min(allowed, 1)

    def exposed_seconds(self, slices: int) -> float:
        """What a step waits for other slices; an upper bound.

        In a ring of n, each sends 2 (n - 1) / n of what it reduces.
        """
        if slices == 1:
            return 0.0
        growth = (1 - 1 / slices) / (1 - 1 / self.design.slices) - 1
        return max(0.0, self.step.dcn_exposed_seconds + growth * self.step.dcn_seconds)

    def seconds(self, slices: int, kernel_efficiency: float = QUOTED_EFFICIENCY) -> float:
        """A step."""
        return self.step.at(kernel_efficiency).seconds + self.exposed_seconds(slices)

"""Designs of training steps, and the table `designs.jsonl` of those that were compiled for TPU slices.

`benchmarks.preflight_table` writes the table. Nothing in it was measured on a TPU: seconds are estimates, bytes and
memory are those of the program.
"""

from datetime import date
from pathlib import Path
from typing import Self

from workloads.preflight_result import QUOTED_EFFICIENCY, StepEstimate
from workloads.spec import Attention, PositiveInt, Remat, Spec, load_preset

TABLE = Path(__file__).parent / "designs.jsonl"
ATTENTION: Attention = "splash"
"""The attention kernel of every design. `auto` uses a faster one if available."""


class Design(Spec):
    """One way to run a preset: weights sharded over a slice, slices data parallel, no gradient accumulation."""

    preset: str
    generation: str
    topology: str
    slices: PositiveInt
    sequences_per_chip: PositiveInt
    remat: Remat
    sequence_length: PositiveInt
    attention: Attention

    @classmethod
    def parse(cls, written: str) -> Self:
        """Return the design `PRESET:GENERATION:TOPOLOGY:SLICES:SEQUENCES_PER_CHIP:REMAT`; other values are the
        preset's.

        Raises:
            ValueError: the text is not a design.
        """
        names = ("preset", "generation", "topology", "slices", "sequences_per_chip", "remat")
        words = written.split(":")
        if len(words) != len(names):
            raise ValueError(f"{written!r} is not a design; write {':'.join(names).upper()}")
        training = load_preset(words[0]).training
        named = {name: int(word) if word.isdecimal() else word for name, word in zip(names, words, strict=True)}
        return cls.model_validate(named | {"sequence_length": training.sequence_length, "attention": ATTENTION})

    def __str__(self) -> str:
        words = (self.preset, self.generation, self.topology, self.slices, self.sequences_per_chip, self.remat)
        return ":".join(map(str, words))


class CompiledStep(Spec):
    """A step that fits, per device."""

    steps: tuple[StepEstimate, ...]
    """Estimates by the efficiency of attention kernels, with the wait for other slices."""
    ici_sent_bytes: dict[str, float]
    dcn_sent_bytes: dict[str, float]
    dcn_seconds: float
    """Seconds of all transfers to other slices if nothing else ran."""
    dcn_exposed_seconds: float
    """Part of these seconds in which the program waits, which is in every step of `steps`."""

    @property
    def quoted(self) -> StepEstimate:
        """Return the estimate that is quoted as the step time."""
        return next(step for step in self.steps if step.kernel_efficiency == QUOTED_EFFICIENCY)


class Row(Spec):
    """One compilation."""

    design: Design
    compiled_on: date
    versions: dict[str, str]
    """Versions of packages that affect the program. A row with other versions is stale."""
    needed_gib: float | None
    """Peak GiB per device. `None` if the step does not fit and the compiler did not report its size."""
    usable_gib: float
    step: CompiledStep | None
    """The compiled step. `None` if it does not fit."""
    compile_cpu_seconds: float


def read_rows(text: str) -> tuple[Row, ...]:
    """Return the rows of the table `text`, keeping only the newest row of each design."""
    found = [Row.model_validate_json(line) for line in text.splitlines()]
    return tuple({row.design: row for row in found}.values())

"""Designs of training steps that were compiled for TPU slices, and what came of each: the table `preflights.jsonl`.

Owns the table's form. `benchmarks.preflight_table` writes it; what follows for other numbers of slices is the business
of `infra.shapes`. Nothing in it was measured on a TPU: seconds are estimates, bytes and memory are the program's.
"""

from datetime import date
from pathlib import Path
from typing import Self

from workloads.preflight_result import QUOTED_EFFICIENCY, StepEstimate
from workloads.spec import Attention, PositiveInt, Remat, Spec, load_preset

TABLE = Path(__file__).parent / "preflights.jsonl"

ATTENTION: Attention = "splash"
"""The kernel of every design. `auto` uses a faster one where it finds one."""


class Design(Spec):
    """One way to run a preset: weights split over a slice, slices data parallel, no accumulation."""

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
        """The design that `PRESET:GENERATION:TOPOLOGY:SLICES:SEQUENCES_PER_CHIP:REMAT` names; the rest is the preset's.

        Raises:
            ValueError: it names none.
        """
        names = ("preset", "generation", "topology", "slices", "sequences_per_chip", "remat")
        words = written.split(":")
        if len(words) != len(names):
            raise ValueError(f"{written!r} is not a design; write {':'.join(names).upper()}")
        training = load_preset(words[0]).training
        named = {name: int(word) if word.isdecimal() else word for name, word in zip(names, words, strict=True)}
        return cls.model_validate(named | {"sequence_length": training.sequence_length, "attention": ATTENTION})

    @property
    def kind(self) -> str:
        """Of slices."""
        return f"{self.generation} {self.topology}"

    @property
    def words(self) -> str:
        """What a chip does of it."""
        return f"{self.kind} with sequences_per_chip {self.sequences_per_chip}, remat {self.remat}"

    def __str__(self) -> str:
        words = (self.preset, self.generation, self.topology, self.slices, self.sequences_per_chip, self.remat)
        return ":".join(map(str, words))


class CompiledStep(Spec):
    """What a step that fits is made of, for each device."""

    steps: tuple[StepEstimate, ...]
    """By the efficiency that attention kernels reach; transfers between slices count as hidden."""
    ici_sent_bytes: dict[str, float]
    dcn_sent_bytes: dict[str, float]
    dcn_seconds: float
    """Of all transfers to other slices, were nothing else done."""
    dcn_exposed_seconds: float
    """What of these the program waits for."""

    def at(self, kernel_efficiency: float) -> StepEstimate:
        """The estimate for kernels that reach this share of the peak."""
        return next(step for step in self.steps if step.kernel_efficiency == kernel_efficiency)

    @property
    def quoted(self) -> StepEstimate:
        """The estimate that stands for "the" step."""
        return self.at(QUOTED_EFFICIENCY)


class Row(Spec):
    """One compilation."""

    design: Design
    compiled_on: date
    versions: dict[str, str]
    """Of what changes the program. A row of other versions than those at hand is stale."""
    needed_gib: float | None
    """Per device, at its peak; None when the step does not fit and the compiler did not say."""
    usable_gib: float
    step: CompiledStep | None
    """None when it does not fit."""
    compile_cpu_seconds: float


def rows(text: str) -> tuple[Row, ...]:
    """The table `text`, of each design the newest row."""
    found = [Row.model_validate_json(line) for line in text.splitlines()]
    return tuple({row.design: row for row in found}.values())

"""Compiles the training step for TPUs with libtpu on this machine: `python -m benchmarks.compiled_steps [DESIGN ...]`.

Each compilation runs in its own process, one after the other. Nothing runs on a TPU: the seconds are estimates of
`workloads.preflight`, and the bytes are those of the program. A row is appended at once to
`benchmarks/designs.jsonl`, so that an interrupted run continues where it stopped. A design is not compiled again if its
row has the installed versions of JAX and libtpu.
"""

import argparse
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, date, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Self, get_args

from infra.stack.settings.jobs import JobSlices, TrainingJob
from infra.stack.submission import assemble
from infra.stack.tpu import resolve
from workloads.preflight_result import StepEstimate, quoted, versions
from workloads.spec import Attention, JobSpec, PositiveInt, Remat, Spec, TokenFileSpec, load_preset
from workloads.spec.chips import chip_of

if TYPE_CHECKING:
    from workloads.preflight.report import Report

TABLE = Path(__file__).parent / "designs.jsonl"
ATTENTION: Attention = "splash"
"""The attention kernel of a design that names none."""
NAMES = ("preset", "generation", "topology", "slices", "sequences_per_chip", "remat", "sequence_length")
FORM = "PRESET:GENERATION:TOPOLOGY:SLICES:SEQUENCES_PER_CHIP:REMAT[:SEQUENCE_LENGTH][:ATTENTION]"


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
        """Return the design that is written as in `FORM`; other values are the preset's.

        Raises:
            ValueError: the text is not a design.
        """
        words = written.split(":")
        kernel = words.pop() if words[-1] in get_args(Attention) else ATTENTION
        if len(words) not in (len(NAMES) - 1, len(NAMES)):
            raise ValueError(f"{written!r} is not a design; write {FORM}")
        named = {name: int(word) if word.isdecimal() else word for name, word in zip(NAMES, words, strict=False)}
        length = load_preset(words[0]).training.sequence_length
        return cls.model_validate({"sequence_length": length, "attention": kernel} | named)

    def __str__(self) -> str:
        words = [str(getattr(self, name)) for name in NAMES]
        is_preset_s = self.sequence_length == load_preset(self.preset).training.sequence_length
        kernel = [self.attention] if self.attention != ATTENTION else []
        return ":".join([*(words[:-1] if is_preset_s else words), *kernel])


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


def job(design: Design) -> JobSpec:
    """Return the specification of a design."""
    shape = resolve(design.generation, design.topology)
    sizes = {"global_batch": design.sequences_per_chip * shape.chips * design.slices, "accumulation": 1}
    stated = TrainingJob(
        name="benchmark",
        team="unused",
        slices=JobSlices(group="unused", count=design.slices),
        preset=design.preset,
        training=sizes | design.model_dump(include={"remat", "sequence_length", "attention"}),
        data=TokenFileSpec(source="token-file", path="unused", held_out_fraction=0.01),
    )
    return assemble(stated, shape, load_preset(design.preset), storage_root="unused")


def missing(wanted: Sequence[Design], known: Sequence[Row]) -> tuple[Design, ...]:
    """Return the wanted designs without a row of the installed versions."""
    fresh = [row.design for row in known if row.versions == versions()]
    return tuple(design for design in wanted if design not in fresh)


def row(design: Design, report: "Report") -> Row:
    """Return the row for a report of the preflight."""
    compilation, done, estimate = report.compilation, report.done, report.estimate
    assert compilation
    memory, excess = compilation.memory, compilation.excess
    return Row(
        design=design,
        compiled_on=datetime.now(UTC).date(),
        versions=versions(),
        needed_gib=memory.peak_gib if memory else excess and excess.needed_gib,
        usable_gib=chip_of(report.spec.slices).usable_hbm_gib_per_device,
        step=CompiledStep(
            steps=estimate.steps,
            ici_sent_bytes={kind.value: total.sent_bytes for kind, total in done.ici.items()},
            dcn_sent_bytes={kind: total.sent_bytes for kind, total in done.dcn.items()},
            dcn_seconds=estimate.dcn_seconds,
            dcn_exposed_seconds=estimate.dcn_exposed_seconds,
        )
        if done and estimate
        else None,
        compile_cpu_seconds=compilation.cpu_seconds,
    )


def compile_design(design: Design) -> Row:
    """Compile a design in this process, which should do nothing else after it."""
    from workloads.preflight.result import compile_step, report_on

    spec = job(design)
    compilation = compile_step(spec)
    return row(design, report_on(spec, compilation.text, compilation))


def _line(made: Row) -> str:
    needed = "more" if made.needed_gib is None else f"{made.needed_gib:.1f}"
    memory = f"{needed} of {made.usable_gib:.1f} GiB, {made.compile_cpu_seconds:.0f} s of CPU"
    step = quoted(made.step.steps) if made.step else None
    if step is None:
        return f"{made.design}: does not fit, needs {memory}"
    return f"{made.design}: {step.seconds:.3f} s, {step.mfu:.1%} MFU (estimates), {memory}"


def main() -> None:
    """Compile the given designs, or those of the table with other versions, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_steps", description=__doc__)
    form = f"{FORM} (default: rows of other versions)"
    parser.add_argument("designs", nargs="*", type=Design.parse, metavar="DESIGN", help=form)
    given = parser.parse_args()
    known = read_rows(TABLE.read_text())
    wanted = missing(given.designs or [each.design for each in known], known)
    os.environ["JAX_PLATFORMS"] = "cpu"
    for design in wanted:
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            made = process.submit(compile_design, design).result()
        with TABLE.open("a") as table:
            table.write(f"{made.model_dump_json()}\n")
        print(_line(made), flush=True)


if __name__ == "__main__":
    main()

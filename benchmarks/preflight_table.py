"""Writes the table of compiled designs, `designs.jsonl`: `python -m benchmarks.preflight_table [DESIGN ...]`.

It compiles each design in its own process, one after the other, and appends its row at once, so that an interrupted run
continues where it stopped. A design is not compiled again if its row has the installed versions of JAX and libtpu.
`--show` compiles nothing and prints the table in Markdown.
"""

import argparse
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

from benchmarks.designs import TABLE, CompiledStep, Design, Row, read_rows
from infra.submission import slice_spec
from infra.tpu import resolve
from workloads.preflight_result import versions
from workloads.spec import JobSpec, MeshSpec, StorageSpec, TokenFileSpec, load_preset

if TYPE_CHECKING:
    from workloads.preflight.compilation import Compilation

DESIGNS = (
    "llama-3.1-8b:v5p:4x4x4:2:4:attention",
    "llama-3.1-8b:v5e:16x16:2:1:attention",
    "llama-3.1-8b:v6e:4x4:2:3:attention",
    "llama-3.2-1b:v5e:4x4:2:1:attention",
    "llama-3.2-1b:v6e:4x4:2:4:attention",
    "llama-3.1-8b:v6e:16x16:2:4:attention",
    "llama-3.1-8b:v5e:16x16:2:2:attention",
    "llama-3.1-8b:v6e:4x4:2:4:attention",
    "llama-3.1-8b:v5p:4x4x4:2:4:dots",
    "llama-3.1-8b:v5p:4x4x4:2:5:dots",
    "llama-3.1-8b:v5e:16x16:2:3:attention",
    "llama-3.1-8b:v6e:16x16:2:6:attention",
    "llama-3.2-1b:v5e:4x4:2:4:attention",
    "llama-3.1-8b:v5p:4x4x4:2:12:attention",
    "llama-3.1-8b:7x:4x4x4:2:8:dots",
    "llama-3.1-70b:v5p:4x4x4:2:2:attention",
    "llama-3.1-70b:7x:4x4x4:2:4:attention",
    "llama-3.1-70b:v6e:16x16:2:1:full",
    "mixtral-8x7b:v5p:4x4x4:2:4:attention",
    "mixtral-8x7b:v6e:16x16:2:4:attention",
)
"""Designs to compile, the most useful first."""

HEAD = """\
| design | s at 35 (25, 50) % | MFU at 35 (25, 50) % | DCN s, of which exposed | GB over ICI | GiB of GiB | CPU s |
|---|---|---|---|---|---|---|"""
"""Head of the table with rows from `line`. All values except MFU are per device: GB that it sends within its slice in a
step, memory at the peak, and the processor time of the compilation."""

_SHORT = {"all-gather": "AG", "all-reduce": "AR", "reduce-scatter": "RS", "all-to-all": "A2A"}


def job(design: Design, **training: object) -> JobSpec:
    """Return the specification of a design, with these values in the section `training`."""
    preset = load_preset(design.preset)
    slices = slice_spec(resolve(design.generation, design.topology), design.slices)
    sizes = {
        "global_batch": design.sequences_per_chip * slices.chips,
        "accumulation": 1,
        "remat": design.remat,
        "sequence_length": design.sequence_length,
        "attention": design.attention,
    }
    return JobSpec(
        name="benchmark",
        preset=design.preset,
        slices=slices,
        mesh=MeshSpec(replica=slices.count, fsdp=slices.devices_per_slice),
        model=preset.model,
        data=TokenFileSpec(source="token-file", path="unused", held_out_fraction=0.01),
        optimizer=preset.optimizer,
        training=preset.training.model_copy(update=sizes | training),
        storage=StorageSpec(path="unused", existing_run="anew"),
    )


def stale(known: Sequence[Row]) -> tuple[Design, ...]:
    """Return the designs whose row has other versions than the installed ones."""
    return tuple(row.design for row in known if row.versions != versions())


def missing(wanted: Sequence[Design], known: Sequence[Row]) -> tuple[Design, ...]:
    """Return the wanted designs without a row of the installed versions."""
    outdated = stale(known)
    fresh = [row.design for row in known if row.design not in outdated]
    return tuple(design for design in wanted if design not in fresh)


def row(design: Design, report: Mapping[str, Any]) -> Row:
    """Return the row for a report of the preflight."""
    compilation, totals, estimate = report["compilation"], report["totals"], report["estimate"]
    step = None
    if estimate:
        step = CompiledStep(
            steps=estimate["steps"],
            ici_sent_bytes={kind: total["sent_bytes"] for kind, total in totals["ici"].items()},
            dcn_sent_bytes={kind: total["sent_bytes"] for kind, total in totals["dcn"].items()},
            dcn_seconds=estimate["dcn_seconds"],
            dcn_exposed_seconds=estimate["dcn_exposed_seconds"],
        )
    return Row(
        design=design,
        compiled_on=datetime.now(UTC).date(),
        versions=versions(),
        needed_gib=compilation["memory"]["peak_gib"] if step else compilation["excess"]["needed_gib"],
        usable_gib=report["usable_gib"],
        step=step,
        compile_cpu_seconds=compilation["cpu_seconds"],
    )


def compile_alone(
    design: Design, compiled: "Callable[[JobSpec], Compilation] | None" = None, **training: object
) -> Row:
    """Compile a design in this process, which should do nothing else after it.

    `compiled` compiles the job in another way than the trainer. `training` changes values of that section.
    """
    from workloads.preflight.preflight import compile_step, report_on
    from workloads.spec.chips import chip_of

    spec = job(design, **training)
    compilation = (compiled or compile_step)(spec)
    report = json.loads(report_on(spec, compilation.text, compilation).as_json())
    return row(design, report | {"usable_gib": chip_of(spec.slices).usable_hbm_gib_per_device})


def in_own_process(compiles: Callable[..., Row], *arguments: object) -> Row:
    """Call a function that compiles in a process of its own, and return its row."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(compiles, *arguments).result()


def extend(wanted: Sequence[Design]) -> Iterator[str]:
    """Compile designs, append their rows to the table and yield a line for each."""
    for design in wanted:
        made = in_own_process(compile_alone, design)
        with TABLE.open("a") as table:
            table.write(f"{made.model_dump_json()}\n")
        yield f"{design}: {_summary(made)}, {made.compile_cpu_seconds:.0f} s of CPU"


def line(name: str, made: Row) -> str:
    """Return a row of the table in Markdown."""
    return f"| {name} | {' | '.join(_cells(made))} |"


def _cells(made: Row) -> tuple[str, ...]:
    needed = "more" if made.needed_gib is None else f"{made.needed_gib:.1f}"
    memory, compiler = f"{needed} of {made.usable_gib:.1f}", f"{made.compile_cpu_seconds:.0f}"
    if made.step is None:
        return ("does not fit", "", "", "", memory, compiler)
    step, rest = made.step.quoted, [each for each in made.step.steps if each != made.step.quoted]
    sent = [f"{_SHORT.get(kind, kind)} {sent / 1e9:.1f}" for kind, sent in made.step.ici_sent_bytes.items()]
    return (
        f"{step.seconds:.3f} ({', '.join(f'{each.seconds:.3f}' for each in rest)})",
        f"{step.mfu:.1%} ({', '.join(f'{each.mfu:.1%}' for each in rest)})",
        f"{made.step.dcn_seconds:.3f}, {made.step.dcn_exposed_seconds:.4f}",
        ", ".join(sent),
        memory,
        compiler,
    )


def _summary(made: Row) -> str:
    if made.step is None:
        return f"does not fit, needs {made.needed_gib or float('nan'):.1f} of {made.usable_gib:.1f} GiB"
    return f"{made.needed_gib:.1f} of {made.usable_gib:.1f} GiB, {made.step.quoted.seconds:.3f} s (an estimate)"


def main() -> None:
    """Compile the given designs, or all, and print a line for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.preflight_table", description=__doc__)
    form = "PRESET:GENERATION:TOPOLOGY:SLICES:SEQUENCES_PER_CHIP:REMAT (default: the list in this module)"
    parser.add_argument("designs", nargs="*", type=Design.parse, metavar="DESIGN", help=form)
    parser.add_argument("--stale", action="store_true", help="also compile designs whose row has other versions")
    parser.add_argument("--show", action="store_true", help="print the table in Markdown; compile nothing")
    options = parser.parse_args()
    known = read_rows(TABLE.read_text())
    if options.show:
        print(HEAD, *(line(str(each.design), each) for each in known), sep="\n")
        return
    wanted = options.designs or [Design.parse(written) for written in DESIGNS]
    for text in extend(missing([*wanted, *(stale(known) if options.stale else ())], known)):
        print(text, flush=True)


if __name__ == "__main__":
    main()

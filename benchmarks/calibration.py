"""Compares published step times with this project's estimates: `python -m benchmarks.calibration [TOPOLOGY ...]`.

It compiles the trainer's step with the batch and slices of each recipe in `workloads/calibration.yaml`, one after the
other, each in its own process. The programs differ from the measured ones, so the ratio compares the estimate for this
trainer with what others have reached. It does not show how good the estimate is.
"""

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import preflight_table
from benchmarks.designs import Design
from cli.preflight import run
from infra.tpu import resolve
from workloads.preflight_result import Calibration, PreflightResult, Recipe, load_calibration
from workloads.spec import JobSpec, load_preset

PRESET = "llama-3.1-8b"
LARGEST_CHIPS = 64
"""Largest slice to compile by default. Larger ones are compiled only if they are given on the command line."""


def job(recipe: Recipe, calibration: Calibration) -> JobSpec:
    """Return a job of this project with the batch and slice of the recipe."""
    training = load_preset(PRESET).training
    design = Design(
        preset=PRESET,
        generation=recipe.generation,
        topology=recipe.topology,
        slices=1,
        sequences_per_chip=recipe.sequences_per_chip,
        remat=training.remat,
        sequence_length=calibration.sequence_length,
        attention=training.attention,
    )
    return preflight_table.job(design)


def main() -> None:
    """Compile for the given topologies, or all up to 64 chips, and print a row for each."""
    known = load_calibration()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("topologies", nargs="*", metavar="TOPOLOGY", help="such as 4x4 (default: all up to 64 chips)")
    named = parser.parse_args().topologies
    print("| slice | tokens a chip | published s | estimate s at 25 / 35 / 50 % | ratio at 35 % | GiB | wall / CPU s |")
    print("|---|---|---|---|---|---|---|")
    for recipe in known.recipes:
        chips = resolve(recipe.generation, recipe.topology).chips
        if recipe.topology in named or (not named and chips <= LARGEST_CHIPS):
            with tempfile.TemporaryDirectory() as folder:
                found = run(job(recipe, known), Path(folder), None, Console(stderr=True))
            print(f"| {' | '.join(_cells(recipe, known, found))} |", flush=True)


def _cells(recipe: Recipe, known: Calibration, found: PreflightResult) -> list[str]:
    quoted = found.estimate
    return [
        f"{recipe.generation} {recipe.topology}",
        f"{recipe.sequences_per_chip} x {known.sequence_length}",
        f"{recipe.published_seconds:.3f}",
        " / ".join(f"{step.seconds:.3f}" for step in found.steps) or found.unsupported or "does not fit",
        f"{quoted.seconds / recipe.published_seconds:.2f}" if quoted else "",
        f"{found.needed_gib:.1f}" if found.needed_gib else "",
        f"{found.compile_wall_seconds or 0:.0f} / {found.compile_cpu_seconds or 0:.0f}",
    ]


if __name__ == "__main__":
    main()

"""The training step compiled for TPUs by libtpu on this machine: `python -m benchmarks.compiled_steps [NAME ...]`.

Each row is one compilation in a process of its own, one after the other, and the estimate that
`workloads.preflight` makes of the program. `automatic` is the same model with its weights and batch split alike, the
collectives left to XLA's partitioner. Nothing runs on a TPU: the seconds are an estimate, the bytes are the program's.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from benchmarks import preflight_table
from infra import plan
from workloads.spec import JobSpec

ICI = ("all-gather", "all-reduce", "reduce-scatter")


@dataclass(frozen=True)
class Design:
    """One way to run a preset on two v6e slices of 16 chips, 8,192 tokens a sequence."""

    preset: str
    sequences_per_chip: int
    training: Mapping[str, Any] = field(default_factory=dict[str, Any])
    automatic: bool = False


DESIGNS = {
    "1b-splash": Design("llama-3.2-1b", 4),
    "1b-fused": Design("llama-3.2-1b", 4, {"attention": "fused"}),
    "1b-fused-full": Design("llama-3.2-1b", 4, {"attention": "fused", "remat": "full"}),
    "1b-splash-full": Design("llama-3.2-1b", 4, {"remat": "full"}),
    "8b-splash": Design("llama-3.1-8b", 3),
    "8b-fused": Design("llama-3.1-8b", 3, {"attention": "fused"}),
    "1b-manual-short": Design("llama-3.2-1b", 4, {"sequence_length": 2048, "attention": "reference"}),
    "1b-automatic-short": Design("llama-3.2-1b", 4, {"sequence_length": 2048, "attention": "reference"}, True),
}


def job(design: Design) -> JobSpec:
    """The design's specification."""
    named = plan.Design.parse(f"{design.preset}:v6e:4x4:2:{design.sequences_per_chip}:attention")
    return preflight_table.job(named, **design.training)


def compile_alone(name: str) -> dict[str, Any]:
    """Compile in this process, which then should do nothing else."""
    from benchmarks.automatic_sharding import compile_automatic
    from workloads.preflight.compilation import compile_for_account
    from workloads.preflight.preflight import compile_step, report_on

    design = DESIGNS[name]
    spec = job(design)
    automatic = partial(compile_automatic, spec)
    compilation = compile_for_account(automatic) if design.automatic else compile_step(spec)
    return json.loads(report_on(spec, compilation.text, compilation).as_json())


def compiled(name: str) -> dict[str, Any]:
    """The report of a design, compiled in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.compiled_steps", "--alone", name]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Compile the designs named, or all, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compiled_steps", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(DESIGNS)}; all when missing")
    parser.add_argument("--alone", metavar="NAME", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        print(json.dumps(compile_alone(options.alone)))
        return
    print("| design | s at 25 / 35 / 50 % | MFU at 50 % | peak / temp GiB | DCN MB | AG / AR / RS GB | wall / CPU s |")
    print("|---|---|---|---|---|---|---|")
    for name in options.names or DESIGNS:
        print(f"| {name} | {' | '.join(_cells(compiled(name)))} |", flush=True)


def _cells(report: Mapping[str, Any]) -> list[str]:
    compilation = report["compilation"]
    compiler = f"{compilation['wall_seconds']:.0f} / {compilation['cpu_seconds']:.0f}"
    if compilation["excess"]:
        return [f"needs {compilation['excess']['needed_gib']:.1f} GiB", "", "", "", "", compiler]
    steps, totals, memory = report["estimate"]["steps"], report["totals"], compilation["memory"]
    moved = [totals["ici"].get(kind, {}).get("sent_bytes", 0) / 1e9 for kind in ICI]
    return [
        " / ".join(f"{step['seconds']:.3f}" for step in steps),
        f"{steps[-1]['mfu']:.1%}",
        f"{memory['peak_gib']:.1f} / {memory['temporary_gib']:.1f}",
        f"{sum(kind['sent_bytes'] for kind in totals['dcn'].values()) / 1e6:.1f}",
        " / ".join(f"{gigabytes:.3f}" for gigabytes in moved),
        compiler,
    ]


if __name__ == "__main__":
    main()

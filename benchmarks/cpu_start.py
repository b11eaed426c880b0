"""Measures the time from the start of the trainer to its first step: `python -m benchmarks.cpu_start`.

Each start is `python -m workloads.training` on one CPU device, with everything that a start on a cluster has except
other hosts: data, run, ledger, checkpoints, watchdog. It ends when the line of the first step is printed. The parts
come from the ledger of the run. A cold start finds no compiled program, and a warm one finds those of an earlier start.
The processor time depends little on what else runs on the machine.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import psutil

from benchmarks.cpu_step import job
from sandbox.daemon import CHECKOUT
from workloads.progress import StepProgress
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"
_ROUNDS = 3


def own_start(cache: Path) -> dict[str, float]:
    """Return the seconds from the start of the process to the end of the first step, by part and in total."""
    with tempfile.TemporaryDirectory() as storage:
        spec = job(Path(storage)).model_dump_json()
        variables = {JOB_SPEC_VARIABLE: spec, RUN_ID_VARIABLE: "run", START_VARIABLE: "0", CACHE_VARIABLE: str(cache)}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))}
        began = time.time()
        with subprocess.Popen(
            [sys.executable, "-m", "workloads.training"],
            cwd=CHECKOUT,
            env={**inherited, "JAX_PLATFORMS": "cpu", **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if StepProgress.parse(line):
                    break
            ended, used = time.time(), psutil.Process(process.pid).cpu_times()
            # It saves on SIGTERM. Its files are deleted with the folder.
            process.terminate()
            process.communicate()
        if not StepProgress.parse(lines[-1]):
            raise RuntimeError(f"the trainer ended before its first step: {''.join(lines)}")
        parts = _parts(Path(storage), began, ended)
        return {**parts, "total": ended - began, "processor": used.user + used.system}


def _parts(storage: Path, began: float, ended: float) -> dict[str, float]:
    (ledger,) = storage.glob("runs/run/ledger/*.jsonl")
    events = {event["event"]: event for event in map(json.loads, ledger.read_text().splitlines())}
    program, compiled = events["start"], events["compile"]
    return {
        "python": program["began"] - began,
        "import, data": program["time"] - program["began"],
        "initialise, compile": compiled["time"] - program["time"],
        "step": ended - compiled["time"],
    }


def main() -> None:
    """Print the median start of each kind with its parts."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as cache:
        for number in range(_ROUNDS):
            for kind in ("cold", "warm"):
                found[kind].append(own_start(Path(cache) / str(number)))
    for kind, starts in found.items():
        parts = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
        total, processor = parts.pop("total"), parts.pop("processor")
        each = ", ".join(f"{name} {parts[name]:.1f}" for name in parts)
        print(f"{kind:6}{total:>6.1f} s, {processor:.1f} s of processor time: {each}")


if __name__ == "__main__":
    main()

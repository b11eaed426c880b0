"""Measures the time from the start of the trainer to its first step.

Run `python -m benchmarks.cpu_start [--levanter-python PATH]`. Each start is `python -m workloads.training` on one CPU
device, with everything that a start on a cluster has except other hosts: data, run, ledger, checkpoints, watchdog. It
ends when the line of the first step is printed. The parts come from the ledger of the run. A cold start finds no
compiled program, and a warm one finds those of an earlier start. The processor time depends little on what else runs on
the machine. Levanter starts too if the Python of an environment with it is given. That start is shorter than the one of
its own command, see `peers/levanter_step`. All take turns for several rounds.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.cpu_step import LEVANTER, LEVANTER_ATTENTION
from benchmarks.training_job import StepProcess, cpu_environment, job
from sandbox.daemon import CHECKOUT
from workloads.progress import StepProgress
from workloads.spec import JOB_SPEC_VARIABLE, RUN_ID_VARIABLE, START_VARIABLE

CACHE_VARIABLE = "JAX_COMPILATION_CACHE_DIR"

TOTAL = "total"
PROCESSOR = "processor"
"""Seconds of processor time, of all threads."""


def own_start(cache: Path) -> dict[str, float]:
    """Return the seconds from the start of the process to the end of the first step, by part and in total."""
    with tempfile.TemporaryDirectory() as storage:
        spec = job(storage).model_dump_json()
        variables = {JOB_SPEC_VARIABLE: spec, RUN_ID_VARIABLE: "run", START_VARIABLE: "0", CACHE_VARIABLE: str(cache)}
        began = time.time()
        with subprocess.Popen(
            [sys.executable, "-m", "workloads.training"],
            cwd=CHECKOUT,
            env=cpu_environment(variables),
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
        return {**parts, TOTAL: ended - began, PROCESSOR: used.user + used.system}


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


def peer_start(command: list[str], environment: Mapping[str, str]) -> dict[str, float]:
    """Return the same for a peer."""
    with StepProcess(command, environment) as process:
        parts = process.ready.parts
        return {**parts, TOTAL: sum(parts.values()), PROCESSOR: process.processor_seconds}


def measure(levanter_python: str | None, cache: Path, rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return the starts of each kind."""
    found: dict[str, list[dict[str, float]]] = defaultdict(list)
    for number in range(rounds):
        cold = cache / str(number)
        for kind in ("cold", "warm"):
            found[f"this trainer, {kind}"].append(own_start(cold / "own"))
            if levanter_python:
                # By default JAX does not keep programs that compile in less than a second. This trainer keeps them.
                environment = {
                    CACHE_VARIABLE: str(cold / "levanter"),
                    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                }
                command = [levanter_python, LEVANTER, LEVANTER_ATTENTION[0]]
                found[f"levanter, {kind}"].append(peer_start(command, environment))
    return found


def main() -> None:
    """Print the median start of each kind with its parts, and the quotients."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_start")
    parser.add_argument(
        "--levanter-python", help="Python of an environment with marin-levanter; see docs/explanation/benchmarks.md"
    )
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as cache:
        found = measure(given.levanter_python, Path(cache), given.rounds)
    for kind, starts in found.items():
        parts = {name: statistics.median(start[name] for start in starts) for name in starts[0]}
        total, processor = parts.pop(TOTAL), parts.pop(PROCESSOR)
        each = ", ".join(f"{name} {parts[name]:.1f}" for name in parts)
        print(f"{kind:20}{total:>6.1f} s, {processor:.1f} s of processor time: {each}")
    for kind in ("cold", "warm") if given.levanter_python else ():
        pairs = zip(found[f"this trainer, {kind}"], found[f"levanter, {kind}"], strict=True)
        each = sorted(own[TOTAL] / peer[TOTAL] for own, peer in pairs)
        print(f"{kind}: this trainer / levanter {statistics.median(each):.2f} ({each[0]:.2f} to {each[-1]:.2f})")


if __name__ == "__main__":
    main()

"""Measures time and memory of a first preview of each stack: `python -m benchmarks.previews [FILE ...]`.

Each preview runs as for a user: in its own process, on the real engine with the sandbox's plugins, from an empty state
and without a cluster. Processor time and memory are those of the program, the engine and the plugins together, with
shared pages counted once. On a busy machine the processor time is more reliable than the seconds.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from sandbox import programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.site import create

_SAMPLE_SECONDS = 0.25
_MIB = 2**20


@dataclass(frozen=True)
class Measurement:
    """Measurement of a preview."""

    seconds: float
    processor_seconds: float
    mib: float
    """Peak memory in MiB."""
    resources: int


def resources_of(stack_file: Path) -> int:
    """Return the number of resources that `up` would create, from a preview in a sandbox that is not running."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(create(Path(folder)), programs.found(), stack_file)
        return sum(engine.preview(on_event=lambda event: None).change_summary.values())


def measure(stack_file: Path) -> Measurement:
    """Preview the stack in its own process. If the plan is refused, the output says why."""
    started, processor_started, most = time.monotonic(), _processor_seconds(), 0.0
    command = [sys.executable, "-m", "benchmarks.previews", "--count", str(stack_file)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            most = max(most, _mib_of(psutil.Process(process.pid)))
            time.sleep(_SAMPLE_SECONDS)
        seconds = time.monotonic() - started
        printed, _ = process.communicate()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, printed)
    return Measurement(seconds, _processor_seconds() - processor_started, most, int(printed))


def _processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _mib_of(root: psutil.Process) -> float:
    total = 0
    for process in (root, *root.children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.Error:
            continue  # It has ended in the meantime.
    return total / _MIB


def main() -> None:
    """Print the table or, with `--count`, the number of resources of one stack."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.previews")
    parser.add_argument("stack_files", nargs="*", type=Path, default=sorted((CHECKOUT / "stacks").glob("*.yaml")))
    parser.add_argument("--count", action="store_true", help="preview one stack here and print its resources")
    given = parser.parse_args()
    if given.count:
        print(resources_of(given.stack_files[0].resolve()))
        return
    print(f"{'stack':12}{'seconds':>9}{'CPU s':>7}{'MiB':>7}{'resources':>11}")
    for path in given.stack_files:
        found = measure(path.resolve())
        name = path.stem.removeprefix("Pulumi.")
        print(f"{name:12}{found.seconds:>9.1f}{found.processor_seconds:>7.1f}{found.mib:>7.0f}{found.resources:>11}")


if __name__ == "__main__":
    main()

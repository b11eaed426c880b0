"""Measures the time of a first preview of each stack: `python -m benchmarks.previews [FILE ...]`.

Each preview runs as for a user: in its own process, on the real engine with the sandbox's plugins, from an empty state
and without a cluster. The processor time is that of the program, the engine and the plugins together. On a busy machine
it is more reliable than the seconds.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sandbox import programs
from sandbox.daemon import CHECKOUT
from sandbox.engine import Engine
from sandbox.site import create


def resources_of(stack_file: Path) -> int:
    """Return the number of resources that `up` would create, from a preview in a sandbox that is not running."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(create(Path(folder)), programs.found(), stack_file)
        return sum(engine.preview(on_event=lambda event: None).change_summary.values())


def measure(stack_file: Path) -> tuple[float, float, int]:
    """Preview the stack in its own process. Return seconds, processor seconds and the number of resources."""
    started, processor_started = time.monotonic(), _processor_seconds()
    command = [sys.executable, "-m", "benchmarks.previews", "--count", str(stack_file)]
    printed = subprocess.run(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True, check=True).stdout
    return time.monotonic() - started, _processor_seconds() - processor_started, int(printed)


def _processor_seconds() -> float:
    """Return the processor time of all child processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Print the table or, with `--count`, the number of resources of one stack."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.previews")
    parser.add_argument("stack_files", nargs="*", type=Path, default=sorted((CHECKOUT / "stacks").glob("*.yaml")))
    parser.add_argument("--count", action="store_true", help="preview one stack here and print its resources")
    given = parser.parse_args()
    if given.count:
        print(resources_of(given.stack_files[0].resolve()))
        return
    print(f"{'stack':12}{'seconds':>9}{'CPU s':>7}{'resources':>11}")
    for path in given.stack_files:
        seconds, processor, resources = measure(path.resolve())
        print(f"{path.stem.removeprefix('Pulumi.'):12}{seconds:>9.1f}{processor:>7.1f}{resources:>11}")


if __name__ == "__main__":
    main()

"""Measures the time of a first preview of each stack: `python -m benchmarks.previews [FILE ...]`.

Each preview runs as for a user: in its own process, on the real engine with the sandbox's plugins, from an empty state
and without a cluster. The processor time is that of the program, the engine and the plugins together. On a busy machine
it is more reliable than the seconds.
"""

import argparse
import os
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.previews")
    parser.add_argument("stack_files", nargs="*", type=Path, default=sorted((CHECKOUT / "stacks").glob("*.yaml")))
    print(f"{'stack':12}{'seconds':>9}{'CPU s':>7}{'resources':>11}")
    for path in parser.parse_args().stack_files:
        before = os.times()
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            resources = process.submit(resources_of, path.resolve()).result()
        _, _, user, system, seconds = (now - then for now, then in zip(os.times(), before, strict=True))
        print(f"{path.stem.removeprefix('Pulumi.'):12}{seconds:>9.1f}{user + system:>7.1f}{resources:>11}", flush=True)


if __name__ == "__main__":
    main()

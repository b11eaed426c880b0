"""Measures the time until the first line and the result of a call arrive: `python -m benchmarks.calls`.

It needs a running stack with free slices, such as that of `make up`, or another one with --stack and --sandbox.
"""

import argparse
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import multislice
from infra.job_logs import Line, follow, leader
from workloads.progress import FunctionEnded

_FIRST_LINE = "the first line"


@dataclass(frozen=True)
class Measured:
    """Times of a call, in seconds from its begin."""

    submitted_seconds: float
    first_line_seconds: float
    result_seconds: float


def measure(stack: str, slices: str, count: int, sandbox: Path | None) -> Measured:
    """Measure a call of a function that only prints a line."""

    def speaks() -> int:
        import jax

        print("the first line", flush=True)
        return jax.device_count()

    first_line_at: list[float] = []
    has_ended = threading.Event()

    def heard(line: Line) -> None:
        if line.text == _FIRST_LINE:
            first_line_at.append(time.monotonic())
        elif FunctionEnded.parse(line.text):
            has_ended.set()

    began = time.monotonic()
    call = multislice.run(stack, slices, count=count, sandbox=sandbox)(speaks).start()
    submitted = time.monotonic()
    asked = (call.place.api, call.namespace, call.id, leader, heard)
    following = threading.Thread(target=follow, args=asked, daemon=True)
    following.start()
    call.outcome(ended=has_ended).result()
    ended = time.monotonic()
    # The result may arrive before the last lines.
    following.join()
    call.forget()
    return Measured(submitted - began, first_line_at[0] - began, ended - began)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calls", description=__doc__)
    parser.add_argument("--stack", default="local", help="(%(default)s)")
    parser.add_argument("--slices", default="trillium", help="slice group of the stack (%(default)s)")
    parser.add_argument("--count", type=int, default=2, help="number of slices (%(default)s)")
    parser.add_argument("--sandbox", type=Path, default=Path(".sandbox"), help="(%(default)s)")
    parser.add_argument("--calls", type=int, default=5, help="(%(default)s)")
    asked = parser.parse_args()
    print("submitted  first line  result   seconds after the call")
    for _ in range(asked.calls):
        found = measure(asked.stack, asked.slices, asked.count, asked.sandbox)
        print(f"{found.submitted_seconds:9.1f}  {found.first_line_seconds:10.1f}  {found.result_seconds:6.1f}")


if __name__ == "__main__":
    main()

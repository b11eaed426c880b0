"""Implements `python -m workloads.preflight`, which compiles a job's step for its chips and reports on it."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads.preflight_result import keep
from workloads.spec import JobSpec

_UNFIT = 2
_REFUSED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report. Return 0 if the program fits, 2 if it does not, 1 on an error."""
    options = _parser().parse_args(arguments)
    # JAX needs a backend to trace with. A TPU in this machine would not be used.
    os.environ["JAX_PLATFORMS"] = "cpu"
    return _keep(options) if options.keep else _print(options)


def _print(options: argparse.Namespace) -> int:
    from jax.errors import JaxRuntimeError

    from workloads.preflight.result import compile_step, report_on
    from workloads.spec.chips import Unsupported
    from workloads.training.failures import InvalidSpec

    try:
        spec = JobSpec.model_validate_json(options.spec.read_text())
        compilation = None if options.from_text else compile_step(spec)
        text = compilation.text if compilation else options.from_text.read_text()
        if options.dump and compilation:
            # The text is written first, so that it exists even if the analysis fails.
            options.dump.write_text(text)
        report = report_on(spec, text, compilation)
    except (OSError, ValueError, Unsupported, InvalidSpec) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return _REFUSED
    except JaxRuntimeError as fault:
        print(f"error: the compiler refuses the step: {fault}", file=sys.stderr)
        return _REFUSED
    print(report.as_json() if options.json else report.as_table())
    return 0 if report.done else _UNFIT


def _keep(options: argparse.Namespace) -> int:
    """Print a line before each compilation and write the result to a file."""
    if options.compile_cache:
        # JAX reads this when it is imported.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = options.compile_cache
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        # A folder that cannot be written is an error here, because a warning would be overlooked.
        os.environ["JAX_RAISE_PERSISTENT_CACHE_ERRORS"] = "1"
    from workloads.preflight.result import preflight

    try:
        spec = JobSpec.model_validate_json(options.spec.read_text())
        result = preflight(
            spec, lambda compiling: print(compiling, flush=True), bool(options.compile_cache), options.compare_compile
        )
        keep(result, options.keep)
    except (OSError, ValueError) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return _REFUSED
    if result.unsupported:
        print(f"error: {result.unsupported}", file=sys.stderr)
        return _REFUSED
    return 0 if result.fits else _UNFIT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.preflight",
        description="Compile a job's training step for its TPUs on this machine's CPU and show its time and memory.",
    )
    parser.add_argument("spec", type=Path, metavar="SPEC.json", help="the JobSpec")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="write the optimised program's text to FILE")
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="FOLDER",
        help="write the result to FOLDER for the preview; if the step does not fit, try changes that may fit",
    )
    parser.add_argument(
        "--compile-cache",
        metavar="FOLDER",
        help="with --keep: also write the compiled programs to FOLDER, which may be in a bucket",
    )
    parser.add_argument(
        "--compare-compile", action="store_true", help="with --keep: also compile with the other value of `compile`"
    )
    parser.add_argument("--from-text", type=Path, metavar="FILE", help="report on a dumped text without compiling")
    return parser


if __name__ == "__main__":
    sys.exit(main())

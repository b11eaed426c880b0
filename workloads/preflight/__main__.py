"""`python -m workloads.preflight`: compile a job's step for its chips on this machine, and account for it.

Owns the command line.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from workloads.spec import JobSpec

_UNFIT = 2
_REFUSED = 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the report; 0 when the program fits, 2 when it does not, 1 when there is no answer."""
    options = _parser().parse_args(arguments)
    # The compiler needs a backend of its own to trace with; a TPU in this machine would not be used.
    os.environ["JAX_PLATFORMS"] = "cpu"
    from workloads.preflight.chips import Unsupported
    from workloads.preflight.preflight import preflight

    try:
        spec = JobSpec.model_validate_json(options.spec.read_text())
        text = options.from_text.read_text() if options.from_text else None
        report = preflight(spec, text)
    except (OSError, ValidationError, ValueError, Unsupported) as fault:
        print(f"error: {fault}", file=sys.stderr)
        return _REFUSED
    if options.dump and report.compilation:
        options.dump.write_text(report.compilation.text)
    print(report.as_json() if options.json else report.as_table())
    return 0 if report.done else _UNFIT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.preflight",
        description="Compile a job's training step for its TPUs on this machine's CPU, and account for it.",
    )
    parser.add_argument("spec", type=Path, metavar="SPEC.json", help="the JobSpec")
    parser.add_argument("--json", action="store_true", help="all figures as JSON")
    parser.add_argument("--dump", type=Path, metavar="FILE", help="write the optimised program's text")
    parser.add_argument("--from-text", type=Path, metavar="FILE", help="account for a dumped text, compile nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())

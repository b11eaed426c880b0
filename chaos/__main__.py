"""`make chaos`: the whole catalogue on the sandbox, or the faults named."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from chaos.faults import CATALOGUE
from chaos.field import opened
from chaos.trial import Trial, carry_out


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit status: 0 when all holds."""
    options = _parser().parse_args(arguments)
    chosen = [fault for fault in CATALOGUE if not options.faults or fault.name in options.faults]
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder, opened(Path(folder)) as field:
        for fault in chosen:
            trials.append(carry_out(field, fault))
            print(told(trials[-1]), flush=True)
    return 0 if all(not trial.broken for trial in trials) else 1


def told(trial: Trial) -> str:
    """A trial in one line, and one for each thing that does not hold."""
    seen = trial.observed
    recovery = "-" if seen.recovery_seconds is None else f"{seen.recovery_seconds:.0f} s"
    facts = f"lost {seen.lost_steps} steps, back after {recovery}, {seen.terminal}, ended {'/'.join(seen.endings)}"
    verdict = "holds" if not trial.broken else "BROKEN"
    return "\n".join([f"{trial.fault.name:20} {verdict:7} {facts}", *(f"    {said}" for said in trial.broken)])


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Strike jobs on the sandbox with faults.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="names of faults; all of them if none is named")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

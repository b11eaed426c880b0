"""`make chaos`: run the whole catalogue on the sandbox, the named faults, or random faults for some time."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from chaos import report
from chaos.faults import CATALOGUE
from chaos.long_run import Plan, SliceFailure, long_run
from chaos.target import Fault, Target, open_target
from chaos.trial import Result, carry_out, from_json, long_run_to_json, to_json
from sandbox.daemon import CHECKOUT

REPORTS = CHECKOUT / ".sandbox" / "chaos"


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return the exit status, 0 if all checks pass."""
    commands = parser()
    options = commands.parse_args(arguments)
    known = {fault.name: fault for fault in CATALOGUE}
    if unknown := [name for name in options.faults if name not in known]:
        commands.error(f"expected faults of the catalogue, got {', '.join(unknown)}; --list names them all")
    if options.list:
        print("\n".join(f"{fault.name:26} {fault.what}" for fault in CATALOGUE))
        return 0
    options.output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    with open_target(folder) as target:
        if options.random:
            holds = _randomly(target, options)
        else:
            holds = _one_by_one(target, [known[name] for name in options.faults or known], options.output)
    print(f"report: {options.output}")
    if holds:
        shutil.rmtree(folder)
    else:
        print(f"logs and files of the sandbox: {folder}")
    return 0 if holds else 1


def _one_by_one(target: Target, faults: Sequence[Fault], output: Path) -> bool:
    results: dict[str, Result] = {}
    for fault in faults:
        results[fault.name] = carry_out(target, fault)
        print(report.line(results[fault.name]), flush=True)
        _write(output, results)
    return all(each.holds for each in results.values())


def _write(output: Path, results: dict[str, Result]) -> None:
    """Write the report of these results and of earlier results for other faults."""
    kept = output / "results.json"
    earlier = {each.fault: each for each in from_json(kept.read_text())} if kept.exists() else {}
    found = earlier | results
    ordered = [found[fault.name] for fault in CATALOGUE if fault.name in found]
    kept.write_text(to_json(ordered))
    (output / "faults.md").write_text(report.markdown(ordered))
    (output / "faults.svg").write_text(report.picture(ordered))


def _randomly(target: Target, options: argparse.Namespace) -> bool:
    plan = Plan(options.seed, options.random, options.steps, options.slice_failure)
    found = long_run(target, plan, lambda line: print(line, flush=True))
    (options.output / "long_run.json").write_text(long_run_to_json(found))
    (options.output / "long_run.md").write_text(report.long_run_markdown(found))
    (options.output / "long_run.svg").write_text(report.long_run_picture(found))
    print(report.line(found.result), flush=True)
    return found.result.holds


def parser() -> argparse.ArgumentParser:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m chaos", description="Inject faults into jobs on the sandbox.")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="name of a fault (default: all faults)")
    parser.add_argument("--list", action="store_true", help="list the faults of the catalogue and exit")
    parser.add_argument("--output", type=Path, default=REPORTS, help="folder for the report and its pictures")
    parser.add_argument(
        "--random", type=float, metavar="MINUTES", help="inject random faults into one long job for that time instead"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random faults")
    parser.add_argument("--steps", type=int, default=4000, help="steps of the long job")
    parser.add_argument(
        "--slice-failure",
        choices=get_args(SliceFailure),
        default="restart",
        help="whether all slices of the long job restart after a fault, or the others train on",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

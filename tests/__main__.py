"""`make test` and `make test-all`: lint and tests in lanes side by side.

The chain often waits for others: pods that start, leases that end. The other lanes run in these gaps. On a machine
without the Go programs, lanes that need none of them begin while they are built.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sandbox.node_agent.launch import NICE
from tests.cost import FOLDER, RECORD_VARIABLE, Record

_NICE = NICE // 2
_BESIDE = ("sh", "-c", f'echo {_NICE} > /proc/self/autogroup; exec nice -n {_NICE} "$@"', "sh")
"""Starts a command in a session of its own that yields the cores to the chain. Pods of the sandbox yield to it in turn:
some train until they are stopped, and would take whatever there is. Linux may share out cores between sessions by the
autogroup's value only (sched(7))."""
_CHAIN, _SANDBOXES, _TRAINING = "tests/chain", "tests/sandboxes", "tests/workloads/training"
_WEIGHTS = "tests/workloads/weights"
"""With the trainer's tests, because these compile without optimisations."""
_FAULTS = "tests/faults/test_faults.py"
_LINT = ("make", "--no-print-directory", "lint")
_PROGRAMS = "programs"
_GREW_SECONDS = 2.0
_MAX_REPORTED = 10


@dataclass(frozen=True)
class Lane:
    """A command that runs next to the others."""

    name: str
    part: str
    """Lanes of one part belong on one machine; CI runs each part of the complete tier as a job."""
    command: tuple[str, ...]
    first: bool = False
    """Whether the others yield the cores to it."""
    needs_programs: bool = True
    """Whether it starts Go programs."""


def _pytest(*words: str) -> tuple[str, ...]:
    return (sys.executable, "-m", "pytest", *words)


_QUICK = ("-m", "not complete")
_COMMANDS = ("tests/cli", "tests/engine", "tests/multislice", "tests/policy")
_PROGRAM = ("tests/infra", "tests/documents", "tests/fuzz")
_STEP = (*(f"{_TRAINING}/test_{name}.py" for name in ("adapters", "model", "optimizer", "parity", "step")), _WEIGHTS)
"""Half of the time of the trainer's tests, so that neither core has the rest of them alone at the end."""
_LOOP = (_TRAINING, *(f"--ignore={file}" for file in _STEP))
_ELSEWHERE = (_CHAIN, _SANDBOXES, _TRAINING, _WEIGHTS, _FAULTS, *_COMMANDS, *_PROGRAM)
_OTHERS = tuple(f"--ignore={folder}" for folder in _ELSEWHERE)
LANES = (
    Lane("chain", "chain", _pytest(_CHAIN), first=True),
    Lane("sandboxes", "sandboxes", _pytest(_SANDBOXES), first=True),
    Lane("faults", "faults", _pytest(_FAULTS), first=True),
    Lane("lint", "units", _LINT),
    Lane("training", "units", _pytest(*_LOOP, *_QUICK), needs_programs=False),
    Lane("the step of training", "units", _pytest(*_STEP, *_QUICK), needs_programs=False),
    Lane("training in many processes", "units", _pytest(_TRAINING, _WEIGHTS, "-m", "complete"), needs_programs=False),
    Lane("commands", "units", _pytest(*_COMMANDS)),
    Lane("program", "units", _pytest(*_PROGRAM)),
    Lane("the rest", "units", _pytest(*_OTHERS)),
)
"""Of the complete tier. The quick tier is the same without what is marked `complete`."""
_ALONE = "faults"
"""The part that runs only if it is named: how soon a job recovers shows on a machine that does nothing else."""


@dataclass(frozen=True)
class Tier:
    """Which tests run, and how long all of them take at most on two quiet cores."""

    name: str
    minutes: float
    selection: tuple[str, ...]
    programs: tuple[str, ...]
    """The command that finds or builds the Go programs."""
    without: frozenset[str] = frozenset()
    """Lanes that have nothing to run."""
    at_once: int = 8
    """Lanes that run side by side; the others begin when one of these ends."""


BUILD_MINUTES = 18
"""How long environment and programs take beside tests, on a machine that has none of them."""
_BUILD = (sys.executable, "-m", "cli.programs")
QUICK = Tier("quick", 10, _QUICK, _BUILD, frozenset({"sandboxes", "faults", "training in many processes"}))
COMPLETE = Tier("complete", 45, (), (*_BUILD, "--previous"), at_once=4)
"""More lanes on two cores would end no sooner, and tests with a deadline would miss it."""


def main() -> int:
    """Run the lanes; exit status 1 if any fails."""
    parser = argparse.ArgumentParser(prog="python -m tests", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--all", action="store_true", help="also run the tests that are marked `complete`")
    parts = sorted({lane.part for lane in LANES})
    parser.add_argument("--part", choices=parts, action="append", help="run only these lanes")
    given = parser.parse_args()
    tier = COMPLETE if given.all else QUICK
    wanted = given.part or [part for part in parts if part != _ALONE]
    lanes = [lane for lane in LANES if lane.name not in tier.without and lane.part in wanted]
    if not lanes:
        parser.error(f"{' and '.join(given.part)}: all of it is in the complete tier; add --all")
    with tempfile.TemporaryDirectory() as scratch:
        failed, seconds = run(lanes, tier, Path(scratch))
        records = [Record(**json.loads(path.read_text())) for path in Path(scratch).glob("*.json")]
        failed += judged_alone([name for record in records for name in record.over])
        minutes = seconds / 60
    costs = {name: used for record in records for name, used in record.seconds.items()}
    known = FOLDER / f"costs-{tier.name}.json"
    before: Mapping[str, float] = json.loads(known.read_text()) if known.exists() else {}
    print("\n".join(cost_report(tier, minutes, costs, before)))
    if not failed and not given.part and minutes <= tier.minutes:
        FOLDER.mkdir(parents=True, exist_ok=True)
        known.write_text(json.dumps(costs))
    print(f"failed: {', '.join(failed)}" if failed else "passed")
    return int(bool(failed))


def run(lanes: Sequence[Lane], tier: Tier, scratch: Path) -> tuple[list[str], float]:
    """Run all lanes and print the output of each when it ends.

    Returns:
        Names of the lanes that failed, or `programs`; and the seconds since the programs were there.
    """
    failed: list[str] = []
    waiting = list(lanes)
    with ExitStack() as stack:
        # A lane that starts meanwhile gets as much of the cores as the build: its tests have deadlines.
        build = stack.enter_context(subprocess.Popen((*_BESIDE, *tier.programs), start_new_session=True))
        running: dict[Lane, subprocess.Popen[bytes]] = {}
        began = time.monotonic()
        built: int | None = None
        try:
            while running or waiting:
                if built is None and (built := build.poll()) is not None:
                    began = time.monotonic()
                    failed += [_PROGRAMS] if built else []
                    waiting = [lane for lane in waiting if not (built and lane.needs_programs)]
                ready = [lane for lane in waiting if built is not None or not lane.needs_programs]
                for lane in ready[: tier.at_once - len(running)]:
                    waiting.remove(lane)
                    running[lane] = _started(lane, tier, scratch, stack)
                for lane in [lane for lane, process in running.items() if process.poll() is not None]:
                    failed += [lane.name] if running.pop(lane).returncode else []
                    print(f"--- {lane.name}\n{(scratch / lane.name).read_text(errors='replace')}", flush=True)
                time.sleep(0.2)
        except KeyboardInterrupt:
            if build.poll() is None:
                os.killpg(build.pid, signal.SIGTERM)
            for process in running.values():
                process.terminate()
            raise
    return failed, time.monotonic() - began


def _started(lane: Lane, tier: Tier, scratch: Path, stack: ExitStack) -> subprocess.Popen[bytes]:
    selection = tier.selection if "pytest" in lane.command else ()
    command = (*(() if lane.first else _BESIDE), *lane.command, *selection)
    output = stack.enter_context((scratch / lane.name).open("wb"))
    environment = os.environ | {RECORD_VARIABLE: str(scratch / f"{lane.name}.json")}
    process = subprocess.Popen(
        command, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=not lane.first
    )
    return stack.enter_context(process)


def judged_alone(over: Sequence[str]) -> list[str]:
    """Run tests that used too much once more, with nothing beside them; `["costs"]` if one fails again."""
    if not over:
        return []
    print(f"--- over their CPU seconds beside the others, now alone: {len(over)}", flush=True)
    return ["costs"] if subprocess.run(_pytest(*over), check=False).returncode else []


def cost_report(tier: Tier, minutes: float, costs: Mapping[str, float], before: Mapping[str, float]) -> list[str]:
    """Lines about what a run cost; if it took too long, which tests grew since `before`, or cost most."""
    total = f"{len(costs)} tests, {sum(costs.values()) / 60:.1f} CPU minutes, {minutes:.1f} minutes"
    lines = [f"{total}; at most {tier.minutes:g} on two quiet cores"]
    if minutes <= tier.minutes:
        return lines
    grown = {name: used - before.get(name, 0.0) for name, used in costs.items()}
    most = sorted(grown.items(), key=lambda each: -each[1])[:_MAX_REPORTED]
    lines.append(
        "CPU seconds more than in the last run in time:" if before else "CPU seconds of the most expensive tests:"
    )
    return lines + [f"  {more:+7.1f}  {name}" for name, more in most if more > _GREW_SECONDS]


if __name__ == "__main__":
    sys.exit(main())

"""Random faults on one long job, which must still reach its last step with the right losses:
`python -m tests.faults.long_run --random MINUTES --seed SEED`. With `--only NAME`, the same fault strikes every time.

A seed determines the faults and their delays. The steps at which they strike depend on the machine.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import median

from tests.chain.stack import PATIENCE_SECONDS, Chain, sandbox_in
from tests.faults.catalogue import CATALOGUE
from tests.faults.fault import Expected, Fault
from tests.faults.trial import declare, observed, submit
from tests.faults.verdict import Observed, broken, recovery
from workloads.report.goodput import goodput, lost_steps

SAVE_EVERY = 50
_START_SECONDS = 30.0
"""Maximum seconds from the time when all hosts have a process to a strike during start, compilation or restore."""
_MAX_STEPS = 120
"""Maximum number of steps of the attempt before any other strike, between two saves or during one."""
_STEPS_OF_ONLY = (20, 60)
"""Number of steps of the attempt before a strike of a fault that was asked for."""
_AT_START = 0.25
"""Fraction of strikes that do not wait for a step."""

_BY_NAME = {fault.name: fault for fault in CATALOGUE}


@dataclass(frozen=True)
class Draw:
    """A fault and when it strikes, counted from when all hosts have a process."""

    fault: Fault
    seconds: float
    steps: int
    """Number of new steps that must be done before the seconds count."""


@dataclass(frozen=True)
class Strike:
    """A fault that has struck."""

    fault: Fault
    at: float
    """Unix time."""


@dataclass(frozen=True)
class Plan:
    """A long run."""

    seed: int
    minutes: float
    """Minutes in which faults strike. The job then continues to its end."""
    steps: int
    """Number of steps of the job, enough for these minutes."""
    local_save_every_steps: int | None = None
    only: Sequence[Fault] = ()
    """Faults that strike in turns, each among steps. Empty: faults are drawn at random, also for their moments."""

    def job(self, name: str) -> Fault:
        """Return the job of that name as a fault that does not strike."""
        training = {"steps": self.steps, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": self.steps}
        training |= {"local_save_every_steps": self.local_save_every_steps} if self.local_save_every_steps else {}
        settings = {"training": {**training, "step_timeout_minutes": 0.5}, "max_restarts": 10_000}
        return Fault(name, name, Expected(), job=settings)

    @property
    def longest_seconds(self) -> float:
        return 60 * self.minutes + PATIENCE_SECONDS


def draws(seed: int, only: Sequence[Fault] = ()) -> Iterator[Draw]:
    """Yield an endless sequence of faults and their times."""
    drawn = random.Random(seed)
    for fault in cycle(only):
        yield Draw(fault, drawn.random(), drawn.randint(*_STEPS_OF_ONLY))
    faults = [fault for fault in CATALOGUE if fault.anytime]
    while True:
        fault = drawn.choice(faults)
        if drawn.random() < _AT_START:
            yield Draw(fault, drawn.uniform(0, _START_SECONDS), steps=0)
        else:
            yield Draw(fault, drawn.random(), drawn.randint(1, _MAX_STEPS))


def long_run(chain: Chain, plan: Plan) -> tuple[str, ...]:
    """Run the job of `plan` without a fault, then with faults. Print the report, and return the failed checks."""
    undisturbed, job = "undisturbed", f"random-{plan.seed}"
    submit(chain, plan.job(undisturbed))
    chain.wait_for_end(undisturbed, plan.longest_seconds)
    steady = chain.losses(undisturbed)
    chain.remove(undisturbed)
    print(f"{len(steady)} steps without a fault", flush=True)
    submit(chain, plan.job(job))
    began = time.time()
    strikes = [*strike_at_random(chain, job, plan)]
    chain.wait_for_end(job, plan.longest_seconds)
    last = strikes[-1].at if strikes else began
    seen, history = observed(chain, job, last), chain.history(job)
    lost_by_start = Counter(number for number, _ in lost_steps(history.starts))
    spent = {part.name: part.seconds for part in goodput(history.attempts).parts}
    recovered = [(strike.fault.name, recovery(history.starts, strike.at)) for strike in strikes]
    print(report(recovered, (last - began) / 60, seen, spent))
    return verdict_of(job, [strike.fault for strike in strikes], seen, lost_by_start, steady)


def strike_at_random(chain: Chain, job: str, plan: Plan) -> Iterator[Strike]:
    """Strike until the time for strikes is over, and yield each strike."""
    until, count = time.time() + 60 * plan.minutes, 0
    for draw in draws(plan.seed, plan.only):
        if not _moment(chain, job, draw, until):
            break
        # Between two attempts, while the job recovers from the last strike, there may be no process to strike.
        with suppress(ProcessLookupError):
            at = time.time()
            draw.fault.strike(chain, job)
            count += 1
            print(f"{count}: {draw.fault.name} at step {_last_step(chain, job)}", flush=True)
            yield Strike(draw.fault, at)


def _moment(chain: Chain, job: str, draw: Draw, until: float) -> bool:
    """Wait for the time of the strike. Return False if the job has ended or the time for strikes is over."""

    def over() -> bool:
        return time.time() > until or chain.ended(job)

    chain.wait(f"all hosts of {job}", lambda: chain.hosts_run(job) or over())
    wanted = _last_step(chain, job) + draw.steps
    chain.wait(f"step {wanted} of {job}", lambda: _last_step(chain, job) >= wanted or over())
    time.sleep(draw.seconds)
    return not over()


def _last_step(chain: Chain, job: str) -> int:
    return max((line["step"] for line in chain.steps(job)), default=0)


def verdict_of(
    job: str, strikes: Sequence[Fault], seen: Observed, lost: Mapping[int, int], steady: Mapping[int, float]
) -> tuple[str, ...]:
    """Return sentences about failed checks of a job with these strikes. `lost` is the number of lost steps by attempt.

    A fault that strikes while the job recovers from another one may cause no further attempt, hence the bounds.
    """
    endings = frozenset(ending for fault in strikes for ending in fault.expected.endings)
    # Counts are checked against the bounds below. All other checks are the same as for any fault.
    expected = Expected(
        starts=len(seen.endings),
        charged=seen.charged,
        endings=endings,
        lost_steps=seen.lost_steps,
        recovery_seconds=300,
    )
    found = [*broken(job, expected, seen, steady)]
    if len(seen.endings) > len(strikes) + 1:
        found.append(f"expected at most {len(strikes) + 1} starts, got {len(seen.endings)}")
    if unknown := set(seen.endings[:-1]) - endings:
        found.append(f"expected starts to end as {sorted(endings)}, got {sorted(unknown)}")
    if seen.charged > (most := sum(fault.expected.charged for fault in strikes)):
        found.append(f"expected at most {most} restarts that count, got {seen.charged}")
    # A crash during a save also costs the interval before it.
    if (worst := max(lost.values(), default=0)) > 2 * SAVE_EVERY:
        found.append(f"expected at most {2 * SAVE_EVERY} steps of a start to be done again, got {worst}")
    return tuple(found)


def report(
    strikes: Sequence[tuple[str, float | None]], minutes: float, seen: Observed, spent: Mapping[str, float]
) -> str:
    """Return what became of the job: a summary, the faults, and where the time went, as Markdown.

    `strikes` has the name of each fault, and the seconds from its strike to the next new step.
    """
    seconds = sum(spent.values())
    summary = (
        f"{seen.terminal}: {len(strikes)} random faults in {minutes:.0f} minutes, {len(seen.losses)} steps,"
        f" {len(seen.endings)} attempts, {seen.charged} counted restarts, {seen.lost_steps} repeated steps."
    )
    found = {name: [each for other, each in strikes if other == name] for name, _ in strikes}
    faults = [
        f"| `{name}` | {len(every)} | {_median([each for each in every if each is not None])} |"
        for name, every in sorted(found.items(), key=lambda item: -len(item[1]))
    ]
    parts = [f"| {name} | {each:.0f} | {100 * each / seconds:.1f} % |" for name, each in spent.items()]
    tables = ["| fault | times | seconds to the next new step |", "|---|---:|---:|", *faults]
    return "\n".join([summary, "", *tables, "", "| time went to | seconds | share |", "|---|---:|---:|", *parts])


def _median(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"{median(seconds):.1f} ({min(seconds):.1f} to {max(seconds):.1f})"


def parser() -> argparse.ArgumentParser:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.long_run", description=__doc__)
    parser.add_argument("--random", type=float, default=60, metavar="MINUTES", help="(default: %(default)s)")
    parser.add_argument("--seed", type=int, default=8, help="seed of the random faults (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=2000, help="steps of the job (default: %(default)s)")
    parser.add_argument("--local-save-every-steps", type=int, metavar="STEPS", help="save on the nodes so often, too")
    parser.add_argument(
        "--only", action="append", choices=sorted(_BY_NAME), metavar="FAULT", help="fault that strikes, in turns"
    )
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command. Return the exit status, 0 if all checks pass."""
    given = parser().parse_args(arguments)
    plan = Plan(
        given.seed,
        given.random,
        given.steps,
        given.local_save_every_steps,
        [_BY_NAME[name] for name in given.only or ()],
    )
    with sandbox_in(Path(tempfile.mkdtemp(prefix="long-run-"))) as chain:
        declare(chain)
        failed = long_run(chain, plan)
        print("\n".join(failed) or "all checks passed", f"logs and files of the sandbox: {chain.site.root}", sep="\n")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

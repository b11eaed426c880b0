"""Random faults in sequence on one long job, which must still reach its last step with the right losses.

A seed determines the faults and their delays. The steps at which they strike depend on the machine.
"""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from chaos.faults import CATALOGUE, slices
from chaos.sabotage import add_sabotages
from chaos.target import END_SECONDS, SINGLES, Fault, Json, Target, comes_with_the_job
from chaos.trial import LongRun, Strike, result, run_action
from chaos.verdict import Expected, Observed, broken
from workloads.report.goodput import goodput, lost_steps

SliceFailure = Literal["restart", "continue"]

SAVE_EVERY = 50
_CATALOGUE = {fault.name: fault for fault in CATALOGUE}
_START_SECONDS = 30.0
"""Maximum seconds from the time when all hosts have a process to a strike during start, compilation or restore."""
_MOST_STEPS = 120
"""Maximum number of steps of the attempt before any other strike, between two saves or during one."""
_AT_START = 0.25
"""Fraction of strikes that do not wait for a step."""


@dataclass(frozen=True)
class Draw:
    """A fault and when it strikes, counted from when all hosts have a process."""

    fault: Fault
    seconds: float
    steps: int
    """Number of new steps that must be done before the seconds count."""


@dataclass(frozen=True)
class Plan:
    """A long run."""

    seed: int
    minutes: float
    """Minutes in which faults strike. The job then continues to its end."""
    steps: int
    """Number of steps of the job, enough for these minutes."""
    slice_failure: SliceFailure = "restart"
    """Whether all slices of the job restart after a fault, or the others train on."""

    @property
    def job(self) -> dict[str, object]:
        training = {"steps": self.steps, "save_every_steps": SAVE_EVERY, "evaluate_every_steps": self.steps}
        if self.slice_failure == "continue":
            return {**slices.job_on(SINGLES, fewest=1, **training), "max_restarts": 10_000}
        return {"training": {**training, "step_timeout_minutes": 0.5}, "max_restarts": 10_000}

    def edit(self, jobset: Json) -> None:
        """Slow the steps of a job whose slices restart one by one down to those of the other, so that faults strike
        both about as often in a minute. Its processes do not share a JAX world, and would be ten times as fast."""
        if self.slice_failure == "continue":
            add_sabotages(replace(slices.PACE, calls=(1, self.steps)))(jobset)


def draws(seed: int, slice_failure: SliceFailure = "restart") -> Iterator[Draw]:
    """Yield an endless sequence of faults and their times."""
    drawn = random.Random(seed)
    alone = slice_failure == "continue"
    faults = [fault for fault in CATALOGUE if fault.anytime and bool(fault.expected.departure) == alone]
    while True:
        fault = drawn.choice(faults)
        if drawn.random() < _AT_START:
            yield Draw(fault, drawn.uniform(0, _START_SECONDS), steps=0)
        else:
            yield Draw(fault, drawn.random(), drawn.randint(1, _MOST_STEPS))


def long_run(target: Target, plan: Plan, say: Callable[[str], None]) -> LongRun:
    """Run the job of `plan` without a fault, then with faults. `say` receives lines of progress."""
    undisturbed = "undisturbed"
    target.submit(_without_strikes(undisturbed, plan))
    target.wait_for_end(undisturbed, 60 * plan.minutes + END_SECONDS)
    steady = target.observed(undisturbed, 0.0).losses
    target.remove(undisturbed)
    say(f"{len(steady)} steps without a fault")
    job = f"random-{plan.seed}"
    target.submit(replace(_without_strikes(job, plan), edit=plan.edit))
    began = time.time()
    strikes: list[Strike] = []

    def run() -> None:
        strike_at_random(target, job, plan, strikes, say)
        target.wait_for_end(job, 60 * plan.minutes + END_SECONDS)

    failed = run_action(run)
    last = strikes[-1].time if strikes else began
    seen = target.observed(job, last)
    history = target.history(job)
    lost_by_start = Counter(number for number, _ in lost_steps(history.starts))
    verdict = (*failed, *verdict_of(strikes, seen, lost_by_start, steady))
    # A job that ends earlier is struck for less time than planned.
    what = f"{len(strikes)} random faults in {(last - began) / 60:.0f} minutes"
    fault = Fault(job, what, strike=comes_with_the_job, expected=Expected())
    return LongRun(
        seed=plan.seed,
        strikes=tuple(strikes),
        spent={part.name: part.seconds for part in goodput(history.attempts).parts},
        result=result(fault, seen, verdict, (began, last, time.time())),
    )


def verdict_of(
    strikes: Sequence[Strike], seen: Observed, lost: Mapping[int, int], steady: Mapping[int, float]
) -> tuple[str, ...]:
    """Return sentences about failed checks of a job with these strikes. `lost` is the number of lost steps by attempt.

    A fault that strikes while the job recovers from another one may cause no further attempt, hence the bounds.
    """
    struck = [_CATALOGUE[strike.fault].expected for strike in strikes]
    endings = frozenset(ending for expected in struck for ending in expected.endings)
    # Counts are checked against the bounds below. All other checks are the same as for any fault.
    expected = Expected(
        starts=len(seen.endings),
        charged=seen.charged,
        endings=endings,
        lost_steps=seen.lost_steps,
        recovery_seconds=300,
    )
    found = [*broken(expected, seen, steady, SAVE_EVERY)]
    if len(seen.endings) > len(strikes) + 1:
        found.append(f"expected at most {len(strikes) + 1} starts, got {len(seen.endings)}")
    if unknown := set(seen.endings[:-1]) - endings:
        found.append(f"expected starts to end as {sorted(endings)}, got {sorted(unknown)}")
    if seen.charged > (most := sum(expected.charged for expected in struck)):
        found.append(f"expected at most {most} restarts that count, got {seen.charged}")
    # A crash during a save also costs the interval before it.
    if (worst := max(lost.values(), default=0)) > 2 * SAVE_EVERY:
        found.append(f"expected at most {2 * SAVE_EVERY} steps of a start to be done again, got {worst}")
    return tuple(found)


def _without_strikes(name: str, plan: Plan) -> Fault:
    return Fault(name, name, strike=comes_with_the_job, expected=Expected(), job=plan.job)


def strike_at_random(target: Target, job: str, plan: Plan, strikes: list[Strike], say: Callable[[str], None]) -> None:
    """Strike until the time for strikes is over, and append to `strikes`."""
    until = time.time() + 60 * plan.minutes
    for draw in draws(plan.seed, plan.slice_failure):
        if not _moment(target, job, draw, until):
            break
        # Between two attempts, while the job recovers from the last strike, there may be no process to strike.
        with suppress(ProcessLookupError):
            draw.fault.strike(target, job)
            strikes.append(Strike(fault=draw.fault.name, time=time.time()))
            say(f"{len(strikes)}: {draw.fault.name} at step {_last_step(target, job)}")


def _moment(target: Target, job: str, draw: Draw, until: float) -> bool:
    """Wait for the time of the strike. Return False if the job has ended or the time for strikes is over."""

    def over() -> bool:
        return time.time() > until or target.ended(job)

    target.wait(f"all hosts of {job}", lambda: target.runs(job) or over(), END_SECONDS)
    done = _last_step(target, job)
    target.wait(
        f"step {done + draw.steps} of {job}",
        lambda: _last_step(target, job) >= done + draw.steps or over(),
        END_SECONDS,
    )
    time.sleep(draw.seconds)
    return not over()


def _last_step(target: Target, job: str) -> int:
    return max((line["step"] for line in target.steps(job)), default=0)

"""Expectations for a job whose slices restart one by one, observations of it, and failed checks. Pure."""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from workloads.report.history import Event, Step

STEPS_PER_LOSS = 2.0
"""Maximum duration of the step in which a slice is lost, in median steps, after the fault is noticed."""

BACK_SECONDS = 30.0
"""Maximum seconds from a fault until all slices train together again, on a machine that does nothing else."""


@dataclass(frozen=True)
class Departure:
    """Slices that a fault takes out of the group for a while."""

    lost: int = 1
    """Number of slices that the others go on without, and that join again."""
    replaced: bool = True
    """Whether the pods of these slices are replaced. All other slices keep their processes."""
    silent_seconds: float = 0.0
    """Time in which the others cannot train, since they cannot notice the fault yet or since it delays them."""


@dataclass(frozen=True)
class Membership:
    """The slices of a job, from the strike until all train together again."""

    lost: tuple[int, ...] = ()
    """Slices that the others went on without, in order."""
    joined: tuple[int, ...] = ()
    """Slices that joined after that, in order."""
    pods: Mapping[str, int] | None = None
    """Number of pods that each host had, by its name `slice-S-H`."""
    median_seconds: float = 0.0
    """Median time between two steps before the strike."""
    loss_seconds: float = 0.0
    """Longest time between two steps of which a slice was lost in between."""
    slowest_seconds: float = 0.0
    """Longest time between two steps from the strike until all slices are back."""
    back_seconds: float | None = None
    """Longest time in seconds from a loss until all slices are there again. None if they are not there at the end."""
    reads: int = 0
    """Number of reads of arrays of complete checkpoints since the job began."""


_CHANGE = re.compile(r"(lost|joined) ([0-9]+)")


def observe_membership(
    changes: Iterable[Event], steps: Sequence[Step], struck: float, pods: Iterable[str], reads: int
) -> Membership:
    """Return what became of the slices.

    `changes` are the events `SlicesChanged` of whoever led, `struck` is the time of the strike, and `pods` has the name
    `slice-S-H` of the host of each pod.
    """
    ordered = sorted(changes, key=lambda event: event.time)
    found = [(event, kind, int(one)) for event in ordered for kind, one in _CHANGE.findall(event.facts["change"])]
    losses = [event.time for event, kind, _ in found if kind == "lost"]
    # One event may tell of a loss and of the return.
    whole = [event.time for event in ordered if losses and event.time >= losses[0] and _is_whole(event)]
    back = whole[-1] if whole and whole[-1] >= losses[-1] else None
    times = sorted(step.time for step in steps)
    lasted = [after - before for before, after in pairwise(times)]
    first = min(struck, *losses) if losses else struck
    before = [seconds for seconds, end in zip(lasted, times[1:], strict=True) if end <= first]
    since = [seconds for seconds, end in zip(lasted, times[1:], strict=True) if first < end <= (back or times[-1])]
    during = [lasted[place - 1] for time in losses if 0 < (place := bisect_right(times, time)) < len(times)]
    return Membership(
        lost=tuple(one for _, kind, one in found if kind == "lost"),
        joined=tuple(one for _, kind, one in found if kind == "joined"),
        pods=Counter(pods),
        median_seconds=median(before) if before else 0.0,
        loss_seconds=max(during, default=0.0),
        slowest_seconds=max(since, default=0.0),
        back_seconds=max(whole[bisect_left(whole, loss)] - loss for loss in losses) if back else None,
        reads=reads,
    )


def _is_whole(event: Event) -> bool:
    return event.facts["present"] == event.facts["asked"]


def broken_membership(expected: Departure, seen: Membership) -> Iterator[str]:
    """Yield a sentence for each failed check."""
    lost = {*seen.lost}
    if len(lost) != expected.lost:
        yield f"expected the group to go on without {expected.lost} slices, got {sorted(lost)}"
    if seen.back_seconds is None:
        yield f"expected all slices to be back, got {seen.joined} joined after {seen.lost} were lost"
    elif seen.back_seconds > BACK_SECONDS:
        yield f"expected all slices to be back within {BACK_SECONDS:.0f} s, got {seen.back_seconds:.0f} s"
    replaced = {int(host.split("-")[1]) for host, count in (seen.pods or {}).items() if count > 1}
    wanted = lost if expected.replaced else set[int]()
    if replaced != wanted:
        yield f"expected only the pods of slices {sorted(wanted)} to be replaced, got {sorted(replaced)}"
    most = expected.silent_seconds + STEPS_PER_LOSS * seen.median_seconds
    if seen.loss_seconds > most:
        got = f"{seen.loss_seconds:.2f} s where the median is {seen.median_seconds:.2f} s"
        yield f"expected at most {most:.2f} s for the step in which a slice was lost, got {got}"
    if seen.reads:
        yield f"expected no read of a checkpoint's arrays, got {seen.reads}"

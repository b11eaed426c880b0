"""What follows the steps of a run: saves, comparisons, evaluations and profiles."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class AfterStep:
    """Something that follows some steps. `loop.Training` has a list of them, in the order in which they run."""

    every: Callable[[int], bool]
    """Whether it follows the step with this number. Called once for each step."""
    run: Callable[[int], object]
    """Called with the number of the step, when its result is known."""
    needs_state: bool = True
    """Whether it needs the state after the step. The result is then read before the next step begins, which would use
    up the state. Otherwise the next step may be under way."""
    begin: Callable[[], None] | None = None
    """Called before the result of the step is read. Only with `needs_state`."""


def every(steps: int) -> Callable[[int], bool]:
    """Return whether a step is a multiple of `steps`."""
    return lambda step: step % steps == 0

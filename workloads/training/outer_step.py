"""Numerics of slices that train on their own for several steps (DiLoCo, https://arxiv.org/abs/2311.08105).

A window is the inner steps between two outer steps. In an outer step of a fragment of the weights, or of all of them,
the mean over the slices of (outer parameters - own parameters) is the gradient of SGD with Nesterov momentum, and all
slices continue from the new outer parameters. Outer parameters and momentum are vectors on the host, because that is
where sums over slices are made.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workloads.spec import TrainingSpec
from workloads.training.resumption import Position
from workloads.training.step_metrics import Result

BLOCK = 1 << 20
"""Number of elements that an outer step updates at once, so that it needs no second vector."""

COUNTED, LOSS, Z_LOSS, NORM, SKIPPED, SLICES, TRAINED = range(7)
"""Columns of the totals of a window. The losses are sums over the tokens that count; the others are sums over slices.
Tokens of skipped steps count for the loss, but are not in `TRAINED`."""


@dataclass(frozen=True)
class Window:
    """Inner steps between two outer steps, and the parts of the batches that each slice trains on."""

    step: int
    """Number of steps done before it."""
    first: int
    """Number of its first part."""
    steps: int
    slices: tuple[int, ...]
    """Slices that have parts in it. All hosts know the same, even if some of these slices are lost by now."""
    fragment: int
    """Number of the fragment that is exchanged after it."""

    @classmethod
    def after(cls, step: int, first: int, slices: Sequence[int], training: TrainingSpec) -> "Window":
        """Return the window to the next exchange, or to the last step if it comes before."""
        number = step // training.exchange_every
        end = min((number + 1) * training.exchange_every, training.steps)
        return cls(step, first, end - step, tuple(slices), number % training.sync_fragments)

    @property
    def end(self) -> int:
        """Number of steps done after it."""
        return self.step + self.steps

    @property
    def next_part(self) -> int:
        """Number of the first part after it."""
        return self.first + self.steps * len(self.slices)

    def before(self, number: int) -> Position:
        """Return the position before inner step `number`, from 0."""
        return Position(self.step + number, self.first + number * len(self.slices))

    def part(self, number: int, slice_: int) -> int:
        """Return the part of a slice in inner step `number`, from 0."""
        return self.before(number).batch + self.slices.index(slice_)

    def is_lost(self, totals: np.ndarray) -> bool:
        """Return whether no present slice has trained on it."""
        return not totals[:, SLICES].any()

    def missing_parts(self, totals: np.ndarray) -> int:
        """Return the number of parts that no present slice has trained on."""
        return self.steps * len(self.slices) - round(float(totals[:, SLICES].sum()))


def totals_of(results: Sequence[tuple[Result, float]], steps: int) -> np.ndarray:
    """Return one slice's totals float32 [steps, 7] from the result of each inner step and its tokens that count.

    They are zero without results.
    """
    totals = np.zeros((steps, TRAINED + 1), np.float32)
    for row, (result, counted) in zip(totals, results, strict=False):
        losses = result.loss * counted, result.z_loss * counted
        row[:] = counted, *losses, result.gradient_norm, result.skipped, 1, 0 if result.skipped else counted
    return totals


def result_of(row: np.ndarray, ended: float) -> Result:
    """Return the result of an inner step over all slices: means over tokens, and the mean of the slices' norms. It
    counts as skipped if a slice has skipped it."""
    numbers = [float(each) for each in row]
    counted, slices = numbers[COUNTED] or 1.0, numbers[SLICES] or 1.0
    return Result(
        numbers[LOSS] / counted, numbers[Z_LOSS] / counted, numbers[NORM] / slices, numbers[SKIPPED] > 0, ended
    )


def tokens_of(totals: np.ndarray) -> float:
    """Return the number of tokens that were trained on."""
    return float(totals[:, TRAINED].sum(dtype=np.float64))


def weight(own: float, all_of_them: float) -> float:
    """Return the weight of a slice in the mean: its share of the tokens that the slices have trained on."""
    return own / all_of_them if all_of_them else 0.0


@dataclass
class Outer:
    """Outer parameters of a fragment and their momentum on this host, float32 [elements]. Equal in all slices."""

    parameters: np.ndarray
    momentum: np.ndarray

    def difference(self, own: np.ndarray, share: float, wire: np.dtype) -> np.ndarray:
        """Return this slice's summand of the outer gradient, in the type in which it is sent.

        `own` are the slice's parameters, and `share` is its `weight`.
        """
        if not share:
            # Parameters that are not finite must not reach the other slices.
            return np.zeros(own.size, wire)
        difference = np.subtract(self.parameters, own)
        np.multiply(difference, np.float32(share), out=difference)
        return difference.astype(wire, copy=False)

    def step(self, gradient: np.ndarray, learning_rate: float, momentum: float) -> None:
        """Update both in place: m = momentum m + gradient; parameters -= learning_rate (gradient + momentum m).

        Elements are computed one by one in float32, so all hosts get the same bits from the same gradient.
        """
        rate, decay = np.float32(learning_rate), np.float32(momentum)
        for start in range(0, gradient.size, BLOCK):
            block = slice(start, start + BLOCK)
            moved, parameters, update = self.momentum[block], self.parameters[block], gradient[block]
            np.multiply(moved, decay, out=moved)
            np.add(moved, update, out=moved)
            np.subtract(parameters, rate * (update + decay * moved), out=parameters)

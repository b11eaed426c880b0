"""Trains one slice on its own for several steps, and then joins its weights with those of the other slices.

Only an outer step is a round of the group (`group_loop`), so slices join and leave, and the job saves, evaluates and
stops, only there. A slice that joins has no part in the window that the others have just trained; it takes part in
their outer step with a weight of zero. The numerics are in `outer_step`.

With several fragments, an outer step joins only one of them, and the others stay different in each slice. A save joins
all of them. A slice that joins begins with the outer parameters of all fragments.
"""

import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from workloads.group.exchange import Traffic
from workloads.group.protocol import Value
from workloads.progress import PartsLost
from workloads.training.fingerprint import Fingerprints
from workloads.training.fragments import Fragments
from workloads.training.group_loop import GroupMember
from workloads.training.group_schedule import AfterStep
from workloads.training.journal import StepUnderWay
from workloads.training.layout import Tree
from workloads.training.outer_step import Outer, Window, result_of, tokens_of, totals_of, weight
from workloads.training.resumption import Position
from workloads.training.slice_program import Shards, SliceProgram
from workloads.training.step import TrainState

FLOAT32 = np.dtype(np.float32)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OuterState(TrainState):
    """Everything that a checkpoint needs for a bitwise equal continuation: the outer parameters, their momentum, and
    the inner optimizer's state."""

    momentum: Tree


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HeldOuter(OuterState):
    """The same with the frozen weights of a job with `training.lora`."""

    frozen: Tree


class OuterProgram(SliceProgram):
    """The compiled functions of one slice, whose whole state has the momentum of outer steps."""

    @property
    def whole_shapes(self) -> OuterState:
        return OuterState(**vars(self.state_shapes), momentum=self.state_shapes.parameters)

    @property
    def held_shapes(self) -> TrainState:
        whole = self.whole_shapes
        return whole if self.frozen_shapes is None else HeldOuter(**vars(whole), frozen=self.frozen_shapes)

    def initial(self) -> OuterState:
        state = super().initial()
        return OuterState(**vars(state), momentum=jax.tree.map(jnp.zeros_like, state.parameters))

    def fingerprints(self, state: TrainState) -> list[Fingerprints]:
        held = state if self.frozen is None else HeldOuter(**vars(state), frozen=self.frozen)
        return self.prepare_fingerprints().result()(held)


@dataclass(frozen=True)
class Joined:
    """What the slices of a view have summed in an outer step."""

    totals: np.ndarray
    """Totals of the window, float32 [steps, 7]."""
    tokens: float
    """Number of tokens that they have trained on since the previous outer step of this fragment."""
    traffic: Traffic


class OuterMember(GroupMember):
    """This slice in a group with `sync_every` from 2 on. Its position is that of the last outer step."""

    program_type = OuterProgram

    def __init__(self, *given: Any):
        super().__init__(*given)
        shapes = self.program.state_shapes
        self._fragments = Fragments(shapes.parameters, self.training.sync_fragments)
        self._optimizer_shards = Shards(shapes.optimizer, FLOAT32)
        self._joint = np.split(self._vector, np.cumsum(self._fragments.sizes)[:-1])
        """Memory for the sum of each fragment."""
        self._tokens = np.zeros(len(self._joint))
        """Number of tokens that this slice has trained on since the last outer step of each fragment."""
        self._different: list[int] = []
        """Fragments that differ between the slices after the last outer step."""
        self._under_way: list[tuple[StepUnderWay, float]] = []
        """Steps of the window that this slice has trained, with their tokens that count."""
        self._trained = False
        """Whether this slice has nothing more to train before the next outer step."""
        self._window_totals = totals_of([], 0)
        """This slice's totals of the window."""
        self._all_equal = False
        """Whether the inner optimizer's state is equal in all slices too."""

    # States

    @property
    def _whole(self) -> OuterState:
        momentum = self._fragments.tree([outer.momentum for outer in self._outers])
        whole = OuterState(**vars(self.state) | {"parameters": self._outer_parameters()}, momentum=momentum)
        return cast(OuterState, at_position(whole, self.position))

    def _outer_parameters(self) -> Tree:
        return self._fragments.tree([outer.parameters for outer in self._outers])

    @property
    def _parameters_to_evaluate(self) -> Tree:
        return self._outer_parameters() if self._different else self.state.parameters

    @property
    def _notes(self) -> np.ndarray:
        return self._noted(self._trained, self._window.slices)

    @property
    def _notes_at_begin(self) -> np.ndarray:
        return self._noted(False, range(self.spec.slices.count))

    def _noted(self, trained: bool, slices: Any) -> np.ndarray:
        return np.array([trained, *(one in slices for one in range(self.spec.slices.count))], np.int64)

    def _take_over(self, whole: TrainState, notes: np.ndarray) -> None:
        assert isinstance(whole, OuterState), "programs with outer steps have states with a momentum"
        take = self._fragments.take
        self._outers = [
            Outer(take(whole.parameters, number), take(whole.momentum, number)) for number in range(len(self._joint))
        ]
        self._tokens[:], self._different = 0, []
        self.state = TrainState(whole.step, whole.batch, whole.parameters, whole.optimizer)
        self.position = Position.of(whole)
        trained, *present = notes.tolist()
        self._open_window([one for one, has_part in enumerate(present) if has_part])
        self._trained |= bool(trained)

    # Steps

    def _open_window(self, slices: list[int]) -> None:
        self._window = Window.after(self.position.step, self.position.batch, slices, self.training)
        self._under_way.clear()
        self._window_totals = totals_of([], self._window.steps)
        self._began = time.monotonic()
        self._trained = self.me.slice not in slices

    def _step(self) -> None:
        if not self._trained:
            self._train_window()
        window = self._window
        self.processes.deadline.expect(f"step {window.end}", self.training.step_timeout_minutes * window.steps)
        found: list[Joined] = []
        after = cast(AfterStep, self._round(lambda: self._join_window(found), holds=True))
        if window.is_lost(found[-1].totals):
            self.journal.warn(f"all slices that trained steps {window.step + 1} to {window.end} are lost")
            self._open_window(after["present"])
        else:
            self._finish_window(found[-1], after)

    def _train_window(self) -> None:
        """Train on this slice's parts of the window."""
        window = self._window
        self._began = time.monotonic()
        for number in range(window.steps):
            before = window.before(number)
            self.processes.deadline.expect(f"step {before.step + 1}", self.training.step_timeout_minutes)
            rows = self.prepared.batches.training(window.part(number, self.me.slice))
            self.state, result, counted = self.program.inner_step(self.state, rows, before.batch)
            self._under_way.append((self.journal.begin_step(before, result), counted))
        results = [(step.result.result(), counted) for step, counted in self._under_way]
        self._window_totals = totals_of(results, window.steps)
        self._tokens += tokens_of(self._window_totals)
        self._trained = True

    def _join_window(self, found: list[Joined]) -> Value:
        """Sum over the slices of the view what they have trained on, and their differences in the fragment."""
        window = self._window
        summed = self._summed([*self._window_totals.ravel(), self._tokens[window.fragment]])
        totals, tokens = summed[:-1].reshape(self._window_totals.shape), float(summed[-1])
        found.append(Joined(totals, tokens, self._sum_fragment(window.fragment, tokens)))
        sigterm = self.processes.sigterm.is_set()
        return {"kind": "step", "since": window.step, "step": window.end, "sigterm": sigterm}

    def _summed(self, numbers: Sequence[float]) -> np.ndarray:
        """Return the sums of these numbers over the slices of the view."""
        own = np.array(numbers, np.float32)
        sums = np.empty_like(own)
        self._sum({self.me.slice: own}, self._one_part_each, sums, FLOAT32)
        return sums

    def _sum_fragment(self, number: int, tokens: float) -> Traffic:
        """Sum the differences in a fragment. `tokens` is what all slices have trained on since it was last joined."""
        own, wire = self._fragments.take(self.state.parameters, number), self.program.shards.wire
        difference = self._outers[number].difference(own, weight(self._tokens[number], tokens), wire)
        return self._sum({self.me.slice: difference}, self._one_part_each, self._joint[number], wire)

    @property
    def _one_part_each(self) -> dict[int, int]:
        assert self._now
        return {one: one for one in self._now.view.slices}

    def _finish_window(self, joined: Joined, after: AfterStep) -> None:
        """Make the outer step, report the window, and do what the leader decided."""
        window = self._window
        self._step_outer(window.fragment, joined.tokens)
        self._different = [one for one in range(len(self._outers)) if one != window.fragment]
        self._report(joined)
        self.position = Position(window.end, window.next_part)
        self.state = at_position(self.state, self.position)
        self._open_window(after["present"])
        self.journal.restart_clock()
        self._follow(after)

    def _step_outer(self, number: int, tokens: float) -> None:
        """Make the outer step of a fragment with the sum of the differences, and continue from its result. Nothing
        changes if all steps since the last one were skipped."""
        outer, training = self._outers[number], self.training
        if tokens:
            outer.step(self._joint[number], training.outer_learning_rate, training.outer_momentum)
        parameters = self._fragments.put_into(self.state.parameters, number, outer.parameters)
        self.state = replace(self.state, parameters=parameters)
        self._tokens[number] = 0

    def _report(self, joined: Joined) -> None:
        window, totals, sent = self._window, joined.totals, joined.traffic
        self.journal.restart_clock(self._began)
        for (step, ended), row in zip(self._steps(), totals, strict=True):
            self.journal.end_step(step, result_of(row, ended))
        about = {"steps": window.steps, "fragment": window.fragment, "sent_bytes": sent.sent_bytes}
        seconds = {"seconds": sent.seconds, "waited_seconds": sent.waited_seconds}
        self.journal.record("outer_step", step=window.end, **about, **seconds)
        if missing := window.missing_parts(totals):
            dealt = window.steps * len(window.slices)
            self.journal.announce(PartsLost(window.step + 1, window.end, missing, dealt))

    def _steps(self) -> list[tuple[StepUnderWay, float]]:
        """Return the steps of the window, and when each ended. If this slice has not trained them, because it joined,
        they are spread evenly over the time since it did."""
        if self._under_way:
            return [(step, step.result.result().ended) for step, _ in self._under_way]
        window = self._window
        ends: list[float] = np.linspace(self._began, time.monotonic(), window.steps + 1)[1:].tolist()
        return [(StepUnderWay(window.before(number), ended, Future()), ended) for number, ended in enumerate(ends)]

    def _follow(self, after: AfterStep) -> None:
        self._all_equal = after["save"]
        if after["save"]:
            self._make_equal()
        super()._follow(after)

    def _make_equal(self) -> None:
        """Join the other fragments too, and continue with the inner optimizer's state of the lowest slice, so that a
        checkpoint has the state of all slices."""
        # Which slice leads depends on which of them was the first to start.
        moments = self._optimizer_shards.vector(self.state.optimizer)
        of_lowest = np.empty_like(moments)
        tokens = np.zeros(len(self._outers), np.float32)

        def work() -> Value:
            assert self._now
            if self._different:
                tokens[:] = self._summed([*self._tokens])
            for number in self._different:
                self._sum_fragment(number, float(tokens[number]))
            lowest = min(self._now.view.slices)
            self._sum({0: moments} if lowest == self.me.slice else {}, {0: lowest}, of_lowest, FLOAT32)
            return {"kind": "moments"}

        self._round(work, holds=True)
        for number in self._different:
            self._step_outer(number, float(tokens[number]))
        self._different = []
        self.state = replace(self.state, optimizer=self._optimizer_shards.arrays(of_lowest))

    def _to_compare(self) -> Fingerprints:
        found = super()._to_compare()
        if self._all_equal:
            return found
        return {name: one for name, one in found.items() if not name.startswith("optimizer.")}


def at_position(state: TrainState, position: Position) -> TrainState:
    """Return `state` with these numbers of its step and its next batch."""

    def placed(value: int, leaf: jax.Array) -> jax.Array:
        number = np.asarray(value, leaf.dtype)
        return jax.make_array_from_callback((), leaf.sharding, lambda _: number)

    return replace(state, step=placed(position.step, state.step), batch=placed(position.batch, state.batch))

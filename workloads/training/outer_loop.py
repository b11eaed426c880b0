"""Trains one slice on its own for several steps, and then joins its weights with those of the other slices.

Only an outer step is a round of the group (`group_loop`), so slices join and leave, and the job saves, evaluates and
stops, only there. A slice that joins has no part in the window that the others have just trained; it takes part in
their outer step with a weight of zero. The numerics are in `outer_step`.
"""

import time
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
from workloads.training.group_loop import GroupMember
from workloads.training.group_schedule import AfterStep
from workloads.training.journal import StepUnderWay
from workloads.training.layout import Tree
from workloads.training.outer_step import Outer, Window, result_of, totals_of, weight
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


class OuterMember(GroupMember):
    """This slice in a group with `sync_every` from 2 on. Its position is that of the last outer step."""

    program_type = OuterProgram

    def __init__(self, *given: Any):
        super().__init__(*given)
        shapes = self.program.state_shapes
        self._parameter_shards = Shards(shapes.parameters, FLOAT32)
        self._optimizer_shards = Shards(shapes.optimizer, FLOAT32)
        self._under_way: list[tuple[StepUnderWay, float]] = []
        """Steps of the window that this slice has trained, with their tokens that count."""
        self._trained = False
        """Whether this slice has nothing more to train before the next outer step."""
        self._own = np.empty(0, np.float32)
        """This slice's parameters after the window, on the host."""
        self._all_equal = False
        """Whether the inner optimizer's state is equal in all slices too."""

    # States

    @property
    def _whole(self) -> OuterState:
        parts = vars(self.state) | {"parameters": self._on_devices(self._outer.parameters)}
        whole = OuterState(**parts, momentum=self._on_devices(self._outer.momentum))
        return cast(OuterState, at_position(whole, self.position))

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
        momentum = self._parameter_shards.vector(whole.momentum)
        self._outer = Outer(self._parameter_shards.vector(whole.parameters), momentum)
        self.state = TrainState(whole.step, whole.batch, whole.parameters, whole.optimizer)
        self.position = Position.of(whole)
        trained, *present = notes.tolist()
        self._open_window([one for one, has_part in enumerate(present) if has_part])
        self._trained |= bool(trained)

    def _on_devices(self, vector: np.ndarray) -> Tree:
        # Devices of a CPU may use the same memory, which the next outer step overwrites.
        return self._parameter_shards.arrays(vector.copy())

    # Steps

    def _open_window(self, slices: list[int]) -> None:
        training, position = self.training, self.position
        self._window = Window.after(position.step, position.batch, slices, training.sync_every, training.steps)
        self._under_way.clear()
        self._began = time.monotonic()
        self._trained = self.me.slice not in slices
        self._own = self._outer.parameters

    def _step(self) -> None:
        if not self._trained:
            self._train_window()
        window = self._window
        self.processes.deadline.expect(f"step {window.end}", self.training.step_timeout_minutes * window.steps)
        totals = np.empty((window.steps, totals_of([], 1).shape[1]), np.float32)
        sent: list[Traffic] = []
        after = cast(AfterStep, self._round(lambda: self._sum_differences(totals, sent), holds=True))
        if weight(totals, totals):
            self._finish_window(totals, after, sent[-1])
        else:
            self.journal.warn(f"all slices that trained steps {window.step + 1} to {window.end} are lost")
            self._open_window(after["present"])

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
        self._own = self._parameter_shards.vector(self.state.parameters)
        self._trained = True

    def _sum_differences(self, totals: np.ndarray, sent: list[Traffic]) -> Value:
        """Sum over the slices of the view what they have trained on, and the differences of their parameters."""
        assert self._now
        window, wire, me = self._window, self.program.shards.wire, self.me.slice
        parts = {one: one for one in self._now.view.slices}
        own = totals_of([(step.result.result(), counted) for step, counted in self._under_way], window.steps)
        flat = np.empty(own.size, np.float32)
        self._sum({me: own.ravel()}, parts, flat, FLOAT32)
        totals[:] = flat.reshape(own.shape)
        difference = self._outer.difference(self._own, weight(own, totals), wire)
        sent.append(self._sum({me: difference}, parts, self._vector, wire))
        sigterm = self.processes.sigterm.is_set()
        return {"kind": "step", "since": window.step, "step": window.end, "sigterm": sigterm}

    def _finish_window(self, totals: np.ndarray, after: AfterStep, sent: Traffic) -> None:
        """Make the outer step, report the window, and do what the leader decided."""
        window, training = self._window, self.training
        self._outer.step(self._vector, training.outer_learning_rate, training.outer_momentum)
        parameters = self._on_devices(self._outer.parameters)
        self._report(totals, sent)
        self.position = Position(window.end, window.next_part)
        self.state = at_position(replace(self.state, parameters=parameters), self.position)
        self._open_window(after["present"])
        self.journal.restart_clock()
        self._follow(after)

    def _report(self, totals: np.ndarray, sent: Traffic) -> None:
        window = self._window
        self.journal.restart_clock(self._began)
        for (step, ended), row in zip(self._steps(), totals, strict=True):
            self.journal.end_step(step, result_of(row, ended))
        seconds = {"seconds": sent.seconds, "waited_seconds": sent.waited_seconds}
        self.journal.record("outer_step", step=window.end, steps=window.steps, sent_bytes=sent.sent_bytes, **seconds)
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
            self._share_moments()
        super()._follow(after)

    def _share_moments(self) -> None:
        """Continue with the inner optimizer's state of the lowest slice, so that a checkpoint has that of all."""
        # Which slice leads depends on which of them was the first to start.
        moments = self._optimizer_shards.vector(self.state.optimizer)
        of_lowest = np.empty_like(moments)

        def work() -> Value:
            assert self._now
            lowest = min(self._now.view.slices)
            self._sum({0: moments} if lowest == self.me.slice else {}, {0: lowest}, of_lowest, FLOAT32)
            return {"kind": "moments"}

        self._round(work, holds=True)
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

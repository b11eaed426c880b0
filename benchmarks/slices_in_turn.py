"""Trains all slices of a job in this process in turn, with the trainer's programs and numerics.

In outer steps, the slices' hosts sum over this machine's loopback as the trainer does. Gradients of single steps are
summed on the device, which gives the same numbers in less time. Their bytes are those of one such sum over loopback.
"""

import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from threading import Event

import jax
import jax.numpy as jnp
import numpy as np
from workloads.group.exchange import Exchange
from workloads.group.links import Links
from workloads.group.parts import parts_of
from workloads.training.fragments import Fragments
from workloads.training.group_schedule import passed
from workloads.training.outer_step import Outer, Window, tokens_of, totals_of, weight
from workloads.training.slice_program import Shards, SliceProgram

from workloads.spec import JobSpec, TrainingSpec
from workloads.training.data import Batches
from workloads.training.mesh import build_mesh
from workloads.training.model import Summed
from workloads.training.rows import cache_folder, load_rows
from workloads.training.step import TrainState
from workloads.training.step_metrics import Result

FLOAT32 = np.dtype(np.float32)


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    loss: float
    """Held-out loss."""
    sent_bytes: int
    """Bytes that the busiest host has sent."""
    peak_bytes: int
    """Most bytes that a host has sent between two inner steps, apart from saves."""
    seconds: float


class Hosts:
    """A host of each slice, all in this process."""

    def __init__(self, count: int):
        self.count, self._sums = count, 0
        self._stack = ExitStack()
        links = [self._stack.enter_context(closing(Links(one, "127.0.0.1", "benchmark", 1))) for one in range(count)]
        peers = {one: each.address for one, each in enumerate(links)}
        self._exchanges = [self._stack.enter_context(Exchange(each, peers, 0)) for each in links]
        self._pool = self._stack.enter_context(ThreadPoolExecutor(count))
        self._sent = [0] * count
        """Bytes that each host has sent."""

    @property
    def most_sent(self) -> int:
        """Return the bytes that the busiest host has sent."""
        return max(self._sent)

    def close(self) -> None:
        self._stack.close()

    def sum(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sum of the slices' vectors of one type, float32 [size]."""
        return self._summed(dict(enumerate(vectors)), {one: one for one in range(self.count)})

    def send_steps(self, steps: int, gradients: Shards) -> int:
        """Send what the hosts send in one step, count it for all steps, and return the bytes of the busiest host in
        one."""
        if not steps:
            return 0
        before = list(self._sent)
        for vector in (np.zeros(gradients.size, gradients.wire), np.zeros(len(Summed._fields), FLOAT32)):
            self.sum([vector] * self.count)
        each = [now - then for now, then in zip(self._sent, before, strict=True)]
        self._sent = [now + (steps - 1) * one for now, one in zip(self._sent, each, strict=True)]
        return max(each)

    def spread(self, vector: np.ndarray) -> np.ndarray:
        """Return a vector of slice 0 as the others get it."""
        return self._summed({0: vector}, {0: 0})

    def _summed(self, vectors: dict[int, np.ndarray], parts: dict[int, int]) -> np.ndarray:
        wire, size = vectors[0].dtype, vectors[0].size
        outs = [np.empty(size, np.float32) for _ in self._exchanges]
        self._sums += 1

        def summed(one: int) -> int:
            own = {part: vector for part, vector in vectors.items() if part == one}
            return self._exchanges[one].sum(self._sums, own, parts, wire, outs[one], Event()).sent_bytes

        sent = self._pool.map(summed, range(self.count))
        self._sent = [before + now for before, now in zip(self._sent, sent, strict=True)]
        return outs[0]


class Slices:
    """All slices of one job. Runs with other outer steps use the same compiled programs."""

    def __init__(self, job: JobSpec, program: SliceProgram, batches: Batches):
        self._count, self._program, self._batches = job.slices.count, program, batches

    def train(self, training: TrainingSpec, synchronous: int = 0) -> Trained:
        """Train to the end of the run, in the first steps with sums of gradients."""
        began = time.monotonic()
        with closing(Hosts(self._count)) as hosts:
            run = Run(self._program, self._batches, training, hosts)
            run.train_synchronously(training.steps if training.sync_every == 1 else synchronous)
            if training.sync_every > 1:
                run.train_with_outer_steps(synchronous)
            loss = self._held_out_loss(run.states[0], training.evaluation_batches)
            return Trained(loss, hosts.most_sent, run.peak_bytes, time.monotonic() - began)

    def sent_bytes(self, steps: int) -> int:
        """Return the bytes that the busiest host sends in steps with sums of gradients."""
        with closing(Hosts(self._count)) as hosts:
            hosts.send_steps(steps, self._program.shards)
            return hosts.most_sent

    def _held_out_loss(self, state: TrainState, batches: int) -> float:
        """Return the mean loss over the held-out rows."""
        found = np.array(
            [
                jax.device_get(self._program.evaluate(state.parameters, self._batches.held_out(part)))
                for number in range(batches)
                for part in parts_of(number, self._count)
            ]
        )
        return float(found[:, 0].sum() / found[:, 1].sum())


class Run:
    """One run of all slices."""

    def __init__(self, program: SliceProgram, batches: Batches, training: TrainingSpec, hosts: Hosts):
        self._program, self._batches, self._training, self._hosts = program, batches, training, hosts
        self._fragments = Fragments(program.state_shapes.parameters, training.sync_fragments)
        self._slices = range(hosts.count)
        self.states = [program.initial()]
        self.peak_bytes = 0

    def train_synchronously(self, steps: int) -> None:
        """Sum the gradients of all slices in each step."""
        dtype = self._program.wire
        sum_ = jax.jit(lambda trees: jax.tree.map(lambda *parts: _summed_once(parts, dtype), *trees))
        for step in range(steps):
            batches = [self._batches.training(part) for part in parts_of(step, len(self._slices))]
            parts = [self._program.gradients_on_devices(self.states[0], rows) for rows in batches]
            sums = np.sum([np.array(jax.device_get(total), np.float32) for total, _ in parts], axis=0)
            gradients = sum_([tree for _, tree in parts])
            self.states[0], _ = self._program.update_on_devices(self.states[0], sums, gradients, step + 1)
        self._note_peak(self._hosts.send_steps(steps, self._program.shards))

    def train_with_outer_steps(self, first: int) -> None:
        """Let each slice train on its own between outer steps, from step `first` to the end."""
        training, numbers = self._training, range(self._training.sync_fragments)
        self.states = [jax.tree.map(jnp.copy, self.states[0]) for _ in self._slices]
        begin = [self._fragments.take(self.states[0].parameters, number) for number in numbers]
        self._outers = [Outer(vector, np.zeros_like(vector)) for vector in begin]
        self._tokens = np.zeros((len(self._slices), len(numbers)))
        window = Window.after(first, first * len(self._slices), self._slices, training)
        while window.steps:
            totals = [self._train_window(window, one) for one in self._slices]
            before = self._hosts.most_sent
            self._hosts.sum([np.append(each, np.float32(0)) for each in totals])
            self._join(window.fragment)
            self._note_peak(self._hosts.most_sent - before)
            if passed(training.save_every_steps, window.step, window.end) or window.end == training.steps:
                self._make_equal([number for number in numbers if number != window.fragment])
            window = Window.after(window.end, window.next_part, self._slices, training)

    def _train_window(self, window: Window, one: int) -> np.ndarray:
        results: list[tuple[Result, float]] = []
        for number in range(window.steps):
            rows = self._batches.training(window.part(number, one))
            self.states[one], result, counted = self._program.inner_step(
                self.states[one], rows, window.before(number).batch
            )
            results.append((Result.read(result), counted))
        totals = totals_of(results, window.steps)
        self._tokens[one] += tokens_of(totals)
        return totals

    def _join(self, number: int) -> None:
        """Make the outer step of a fragment."""
        outer, training, tokens = self._outers[number], self._training, self._tokens[:, number]
        own = [self._fragments.take(state.parameters, number) for state in self.states]
        shares = [weight(each, tokens.sum()) for each in tokens]
        wire = self._program.shards.wire
        differences = [outer.difference(each, share, wire) for each, share in zip(own, shares, strict=True)]
        outer.step(self._hosts.sum(differences), training.outer_learning_rate, training.outer_momentum)
        self.states = [
            replace(state, parameters=self._fragments.put_into(state.parameters, number, outer.parameters))
            for state in self.states
        ]
        tokens[:] = 0

    def _make_equal(self, others: Sequence[int]) -> None:
        """Do what slices do before a save."""
        if others:
            self._hosts.sum([tokens.astype(np.float32) for tokens in self._tokens])
        for number in others:
            self._join(number)
        shards = Shards(self._program.state_shapes.optimizer, FLOAT32)
        moments = self._hosts.spread(shards.vector(self.states[0].optimizer))
        self.states = [replace(state, optimizer=shards.arrays(moments.copy())) for state in self.states]

    def _note_peak(self, sent_bytes: int) -> None:
        self.peak_bytes = max(self.peak_bytes, sent_bytes)


def _summed_once(parts: Sequence[jax.Array], wire: np.dtype) -> jax.Array:
    """Return the sum of arrays of type `wire` in float32, rounded to `wire` once as `Exchange.sum` rounds it."""
    total, limits = sum(part.astype(jnp.float32) for part in parts), jnp.finfo(wire)
    return jax.lax.reduce_precision(total, limits.nexp, limits.nmant)


@contextmanager
def opened(job: JobSpec) -> Generator[Slices]:
    """Compile the job's programs and open its data."""
    world = job.of_one_slice
    program = SliceProgram(world, build_mesh(world.mesh, world.slices, jax.devices()[:1]), ThreadPoolExecutor(1))
    rows = load_rows(job.data, job.model.vocab_size, job.training.sequence_length, cache_folder())
    with Batches(rows, world.training, program.batch_sharding, job.slices.count) as batches:
        yield Slices(job, program, batches)

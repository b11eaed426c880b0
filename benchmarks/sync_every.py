"""Measures what `training.sync_every` costs in loss and saves in bytes: `python -m benchmarks.sync_every`.

One process trains all slices in turn, with the trainer's programs and numerics (`workloads.training.outer_step`), on
the same rows in the same order. Only the network is left out, so bytes are calculated: each host sends a sum of N bytes
over P slices as 2 (P - 1) / P N. The default model has 20 million weights, which takes hours on a CPU. `--width 64
--layers 2 --rows 12 --length 64` takes minutes.
"""

import argparse
import statistics
import time
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import jax
import numpy as np

from workloads.group.parts import parts_of
from workloads.spec import JobSpec, MeshSpec, SliceSpec, StandardLibrarySpec, StorageSpec, load_preset
from workloads.spec.parameters import total_parameters
from workloads.training.data import Batches
from workloads.training.group_schedule import passed
from workloads.training.mesh import build_mesh
from workloads.training.outer_step import Outer, Window, totals_of, weight
from workloads.training.rows import cache_folder, load_rows
from workloads.training.slice_program import Shards, SliceProgram
from workloads.training.step import TrainState
from workloads.training.step_metrics import Result

FLOAT32 = np.dtype(np.float32)

SAVE_EVERY = 1000
"""Steps between saves, rounded down to a multiple of `sync_every`. At a save and at the end, slices with outer steps
send the inner optimizer's state too."""

HEAD_DIM = 32


@dataclass(frozen=True)
class Trained:
    """A finished run."""

    loss: float
    """Held-out loss."""
    sent_bytes: float
    """Bytes that a host has sent."""
    seconds: float


def job_of(arguments: argparse.Namespace, seed: int, every: int) -> JobSpec:
    """Return the job of one run."""
    preset, width = load_preset("tiny"), arguments.width
    sizes = {
        "embed_dim": width,
        "mlp_dim": 3 * width,
        "layers": arguments.layers,
        "head_dim": HEAD_DIM,
        "query_heads": width // HEAD_DIM,
        "kv_heads": width // HEAD_DIM,
    }
    training = {
        "steps": arguments.steps,
        "global_batch": arguments.rows,
        "sequence_length": arguments.length,
        "seed": seed,
        "save_every_steps": max(SAVE_EVERY // every, 1) * every,
        "evaluation_batches": arguments.evaluation_batches,
        **({"sync_every": every, "lost_rows": "next-step"} if every > 1 else {}),
    }
    return JobSpec(
        name="benchmark",
        preset="tiny",
        slices=SliceSpec.of_cpu(count=arguments.slices, hosts=1, chips_per_host=1),
        mesh=MeshSpec(replica=arguments.slices, fsdp=1),
        model=preset.model_with(sizes),
        data=StandardLibrarySpec(source="python-stdlib", max_bytes=1 << 23, held_out_fraction=0.05),
        optimizer=preset.optimizer.model_copy(
            update={"learning_rate": arguments.learning_rate, "warmup_steps": arguments.steps // 20}
        ),
        training=type(preset.training).model_validate(preset.training.model_dump() | training),
        storage=StorageSpec(path="unused", existing_run="anew"),
        slice_failure="continue",
    )


class Slices:
    """All slices of one job in this process."""

    def __init__(self, job: JobSpec, program: SliceProgram, batches: Batches):
        self.training, self.count = job.training, job.slices.count
        self.program, self.batches = program, batches
        self.parameters = Shards(program.state_shapes.parameters, FLOAT32)
        self.wire = program.shards.wire
        self.sent_bytes = 0.0

    def synchronous(self) -> TrainState:
        """Sum the gradients of all slices in each step."""
        state = self.program.initial()
        for step in range(self.training.steps):
            parts = [self.program.gradients(state, self.batches.training(one)) for one in parts_of(step, self.count)]
            sums = np.sum([part.sums for part in parts], axis=0, dtype=np.float32)
            state, _ = self.program.update(state, sums, self._sum([part.vector for part in parts]), step + 1)
        return state

    def with_outer_steps(self) -> TrainState:
        """Let each slice train on its own between outer steps."""
        training, slices = self.training, range(self.count)
        states = [self.program.initial() for _ in slices]
        begin = self.parameters.vector(states[0].parameters)
        outer = Outer(begin.copy(), np.zeros_like(begin))
        window = Window.after(0, 0, slices, training.sync_every, training.steps)
        while window.steps:
            totals: list[np.ndarray] = []
            for one in slices:
                states[one], own = self._train(states[one], window, one)
                totals.append(own)
            everything = np.sum(totals, axis=0, dtype=np.float32)
            vectors = [self.parameters.vector(state.parameters) for state in states]
            differences = [
                outer.difference(vector, weight(own, everything), self.wire)
                for vector, own in zip(vectors, totals, strict=True)
            ]
            outer.step(self._sum(differences), training.outer_learning_rate, training.outer_momentum)
            states = [self._after(state, outer) for state in states]
            if passed(training.save_every_steps, window.step, window.end) or window.end == training.steps:
                states = self._with_moments_of_first(states)
            window = Window.after(window.end, window.next_part, slices, training.sync_every, training.steps)
        return states[0]

    def held_out_loss(self, state: TrainState) -> float:
        """Return the mean loss over the held-out rows."""
        found = np.array(
            [
                jax.device_get(self.program.evaluate(state.parameters, self.batches.held_out(part)))
                for number in range(self.training.evaluation_batches)
                for part in parts_of(number, self.count)
            ]
        )
        return float(found[:, 0].sum() / found[:, 1].sum())

    def _train(self, state: TrainState, window: Window, one: int) -> tuple[TrainState, np.ndarray]:
        results: list[tuple[Result, float]] = []
        for number in range(window.steps):
            rows = self.batches.training(window.part(number, one))
            state, result, counted = self.program.inner_step(state, rows, window.before(number).batch)
            results.append((Result.read(result), counted))
        return state, totals_of(results, window.steps)

    def _after(self, state: TrainState, outer: Outer) -> TrainState:
        return replace(state, parameters=self.parameters.arrays(outer.parameters.copy()))

    def _with_moments_of_first(self, states: Sequence[TrainState]) -> list[TrainState]:
        shards = Shards(states[0].optimizer, FLOAT32)
        moments = shards.vector(states[0].optimizer)
        self._count(moments)
        return [replace(state, optimizer=shards.arrays(moments.copy())) for state in states]

    def _sum(self, vectors: Sequence[np.ndarray]) -> np.ndarray:
        """Return the sum as `workloads.group.exchange` makes it."""
        self._count(vectors[0])
        total = vectors[0].astype(np.float32)
        for vector in vectors[1:]:
            total += vector
        return total.astype(self.wire).astype(np.float32)

    def _count(self, vector: np.ndarray) -> None:
        self.sent_bytes += 2 * (self.count - 1) / self.count * vector.nbytes


@contextmanager
def opened(job: JobSpec) -> Generator[Slices]:
    """Compile the job's programs and open its data."""
    world = job.of_one_slice
    program = SliceProgram(world, build_mesh(world.mesh, world.slices, jax.devices()[:1]), ThreadPoolExecutor(1))
    rows = load_rows(job.data, job.model.vocab_size, job.training.sequence_length, cache_folder())
    with Batches(rows, world.training, program.batch_sharding, job.slices.count) as batches:
        yield Slices(job, program, batches)


def trained(job: JobSpec) -> Trained:
    """Train the job to its end."""
    with opened(job) as slices:
        began = time.monotonic()
        state = slices.synchronous() if job.training.sync_every == 1 else slices.with_outer_steps()
        loss = slices.held_out_loss(state)
        return Trained(loss, slices.sent_bytes, time.monotonic() - began)


def main() -> None:
    """Print a line for each run, and the table of the means."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sync_every", description=__doc__)
    parser.add_argument("--width", type=int, default=512, help="width of the model")
    parser.add_argument("--layers", type=int, default=7, help="layers of the model")
    parser.add_argument("--rows", type=int, default=48, help="rows of a step over all slices")
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--steps", type=int, default=6000, help="steps of a run")
    parser.add_argument("--slices", type=int, default=3, help="number of slices")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="peak of the inner learning rate")
    parser.add_argument("--evaluation-batches", type=int, default=16, help="held-out batches")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each kind")
    parser.add_argument("--every", type=int, nargs="+", default=[30], help="values of sync_every next to 1")
    arguments = parser.parse_args()
    model = job_of(arguments, 0, 1).model
    print(f"{total_parameters(model) / 1e6:.2f} million weights, {arguments.slices} slices, {arguments.steps} steps of")
    print(f"{arguments.rows} rows of {arguments.length} tokens, learning rate {arguments.learning_rate}", flush=True)
    found: dict[int, list[Trained]] = {}
    for seed in range(arguments.seeds):
        for every in (1, *arguments.every):
            one = trained(job_of(arguments, seed, every))
            found.setdefault(every, []).append(one)
            print(f"seed {seed} sync_every {every}: loss {one.loss:.4f}, {one.seconds:.0f} s", flush=True)
    print("\n| sync_every | held-out loss, mean | against 1, each seed | bytes against 1 |\n|---|---|---|---|")
    for every, runs in found.items():
        against = [one.loss / base.loss - 1 for one, base in zip(runs, found[1], strict=True)]
        each = ", ".join(f"{100 * one:+.2f} %" for one in against)
        share = found[1][0].sent_bytes / runs[0].sent_bytes
        print(f"| {every} | {statistics.mean(one.loss for one in runs):.4f} | {each} | 1/{share:.1f} |")


if __name__ == "__main__":
    main()

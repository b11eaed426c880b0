"""Measures what `training.sync_every` costs in loss and saves in bytes: `python -m benchmarks.sync_every`.

One process trains all slices in turn (`benchmarks.slices_in_turn`), with and without outer steps on the same rows in
the same order. Every combination of the settings of outer steps is one run. The default model has 20 million weights,
which takes hours on a CPU. `--width 64 --layers 2 --rows 12 --length 64` takes minutes.
"""

import argparse
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from benchmarks.slices_in_turn import Trained, opened
from workloads.spec import (
    DataSpec,
    JobSpec,
    MeshSpec,
    SliceSpec,
    StandardLibrarySpec,
    StorageSpec,
    TokenFileSpec,
    TrainingSpec,
    load_preset,
)
from workloads.spec.parameters import total_parameters
from workloads.spec.training import OUTER_LEARNING_RATE, OUTER_MOMENTUM

SAVE_EVERY = 1000
"""Steps between saves, rounded down to a multiple of `sync_every`. At a save and at the end, slices with outer steps
send the inner optimizer's state too."""

HEAD_DIM = 32
HELD_OUT = 0.05
"""Share of the rows that is held out."""


def job_of(arguments: argparse.Namespace, seed: int, count: int) -> JobSpec:
    """Return the job that sums gradients in each step."""
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
        "save_every_steps": SAVE_EVERY,
        "evaluation_batches": arguments.evaluation_batches,
        "compute_dtype": arguments.compute_dtype,
        "remat": "none",
    }
    return JobSpec(
        name="benchmark",
        preset="tiny",
        slices=SliceSpec.of_cpu(count=count, hosts=1, chips_per_host=1),
        mesh=MeshSpec(replica=count, fsdp=1),
        model=preset.model_with(sizes),
        data=data_of(arguments.tokens),
        optimizer=preset.optimizer.model_copy(
            update={"learning_rate": arguments.learning_rate, "warmup_steps": arguments.steps // 20}
        ),
        training=type(preset.training).model_validate(preset.training.model_dump() | training),
        storage=StorageSpec(path="unused", existing_run="anew"),
        slice_failure="continue",
    )


def data_of(tokens: str | None) -> DataSpec:
    """Return the token folder, or the standard library."""
    if tokens:
        return TokenFileSpec(source="token-file", path=tokens, held_out_fraction=HELD_OUT)
    return StandardLibrarySpec(source="python-stdlib", max_bytes=1 << 23, held_out_fraction=HELD_OUT)


def with_outer_steps(job: JobSpec, arguments: argparse.Namespace) -> Iterator[TrainingSpec]:
    """Yield the training section of each run with outer steps."""
    names = ("sync_every", "sync_fragments", "outer_learning_rate", "outer_momentum")
    given = (arguments.every, arguments.fragments, arguments.outer_learning_rate, arguments.outer_momentum)
    for values in product(*given):
        settings: dict[str, Any] = dict(zip(names, values, strict=True))
        every = settings["sync_every"]
        settings |= {"lost_rows": "next-step", "save_every_steps": max(SAVE_EVERY // every, 1) * every}
        whole = job.model_dump()
        yield JobSpec.model_validate(whole | {"training": whole["training"] | settings}).training


@dataclass(frozen=True)
class Kind:
    """Runs that differ only in their seed."""

    slices: int
    training: TrainingSpec
    exact: int
    """First steps with sums of gradients."""

    @property
    def settings(self) -> tuple[str, ...]:
        """Return the first cells of its line in the table."""
        training = self.training
        outer = f"{training.outer_learning_rate:g}, {training.outer_momentum:g}"
        return (str(self.slices), str(training.sync_every), str(training.sync_fragments), outer, str(self.exact))


@dataclass(frozen=True)
class Pair:
    """A run, and what it is compared with: the run that sums gradients in each step, with the same seed."""

    run: Trained
    exact_loss: float
    exact_bytes: int
    """Bytes that as many slices send if they sum gradients in each step."""

    @property
    def difference(self) -> float:
        return self.run.loss / self.exact_loss - 1


SETTINGS = ("slices", "sync_every", "fragments", "outer rate, momentum", "exact steps")
HEADS = (*SETTINGS, "loss", "against each step, each seed", "bytes", "peak MB")


def row_of(settings: tuple[str, ...], pairs: list[Pair]) -> str:
    """Return the line of the table for the runs of all seeds of a kind."""
    against, first = [pair.difference for pair in pairs], pairs[0]
    cells = [
        *settings,
        f"{statistics.mean(pair.run.loss for pair in pairs):.4f}",
        f"{100 * statistics.mean(against):+.2f} % ({', '.join(f'{100 * one:+.2f}' for one in against)})",
        f"1/{first.exact_bytes / first.run.sent_bytes:.1f}",
        f"{first.run.peak_bytes / 1e6:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def run_seed(arguments: argparse.Namespace, seed: int) -> Iterator[tuple[tuple[str, ...], Pair]]:
    """Yield the settings and the run of each kind, first the one that sums gradients in each step.

    Its loss does not depend on the number of slices, so it is trained with the first one only.
    """
    exact_loss, exact_steps = None, list[int](arguments.synchronous)
    for count in arguments.slices:
        job = job_of(arguments, seed, count)
        kinds = [Kind(count, *each) for each in product(with_outer_steps(job, arguments), exact_steps)]
        if exact_loss is None:
            kinds.insert(0, Kind(count, job.training, 0))
        with opened(job) as slices:
            exact_bytes = slices.sent_bytes(arguments.steps)
            for kind in kinds:
                run = slices.train(kind.training, kind.exact)
                exact_loss = exact_loss or run.loss
                yield kind.settings, Pair(run, exact_loss, exact_bytes)


def parser() -> argparse.ArgumentParser:
    """Return the arguments of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sync_every", description=__doc__)
    parser.add_argument("--width", type=int, default=512, help="width of the model")
    parser.add_argument("--layers", type=int, default=7, help="layers of the model")
    parser.add_argument("--rows", type=int, default=48, help="rows of a step over all slices")
    parser.add_argument("--length", type=int, default=256, help="tokens of a row")
    parser.add_argument("--steps", type=int, default=6000, help="steps of a run")
    parser.add_argument("--slices", type=int, nargs="+", default=[3], help="numbers of slices")
    parser.add_argument("--learning-rate", type=float, default=0.001, help="peak of the inner learning rate")
    parser.add_argument("--compute-dtype", default="float32", help="type of the computation and of what slices send")
    parser.add_argument("--tokens", metavar="FOLDER", help="token folder of bytes (default: the standard library)")
    parser.add_argument("--evaluation-batches", type=int, default=16, help="held-out batches")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds, each with a run of each kind")
    parser.add_argument("--every", type=int, nargs="+", default=[30], help="values of sync_every next to 1")
    parser.add_argument("--fragments", type=int, nargs="+", default=[1], help="values of sync_fragments")
    rate, momentum = [OUTER_LEARNING_RATE], [OUTER_MOMENTUM]
    parser.add_argument("--outer-learning-rate", type=float, nargs="+", default=rate, help="outer learning rates")
    parser.add_argument("--outer-momentum", type=float, nargs="+", default=momentum, help="outer momenta")
    parser.add_argument("--synchronous", type=int, nargs="+", default=[0], help="first steps with sums of gradients")
    return parser


def main() -> None:
    """Print a line for each run, and the table of the means."""
    arguments = parser().parse_args()
    weights = total_parameters(job_of(arguments, 0, arguments.slices[0]).model)
    print(f"{weights / 1e6:.2f} million weights, {arguments.steps} steps of {arguments.rows} rows of")
    print(f"{arguments.length} tokens, learning rate {arguments.learning_rate}", flush=True)
    found: dict[tuple[str, ...], list[Pair]] = {}
    for seed in arguments.seeds:
        for settings, pair in run_seed(arguments, seed):
            found.setdefault(settings, []).append(pair)
            print(f"seed {seed}, {pair.run.seconds:.0f} s: {row_of(settings, [pair])}", flush=True)
    print(f"\n| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    for settings, pairs in found.items():
        print(row_of(settings, pairs))


if __name__ == "__main__":
    main()

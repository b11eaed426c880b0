"""Measures what `training.sync_every` costs in loss and saves in bytes: `python -m benchmarks.sync_every`.

One process trains all slices in turn (`benchmarks.slices_in_turn`), with and without outer steps on the same rows in
the same order. Every combination of the settings of outer steps is one run. The default model has 20 million weights,
which takes hours on a CPU. `--width 64 --layers 2 --rows 12 --length 64` takes minutes.
"""

import argparse
import statistics
from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks.slices_in_turn import Trained, opened
from workloads.spec import JobSpec, MeshSpec, SliceSpec, StandardLibrarySpec, StorageSpec, TrainingSpec, load_preset
from workloads.spec.parameters import total_parameters
from workloads.spec.training import OUTER_LEARNING_RATE, OUTER_MOMENTUM

SAVE_EVERY = 1000
"""Steps between saves, rounded down to a multiple of `sync_every`. At a save and at the end, slices with outer steps
send the inner optimizer's state too."""

HEAD_DIM = 32


def job_of(arguments: argparse.Namespace, seed: int) -> JobSpec:
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


def row_of(kind: tuple[TrainingSpec, int], runs: list[Trained], base: list[Trained]) -> str:
    """Return the line of the table for the runs of all seeds of a kind: its settings and its first exact steps."""
    training, exact = kind
    against = [one.loss / each.loss - 1 for one, each in zip(runs, base, strict=True)]
    cells = [
        str(training.sync_every),
        str(training.sync_fragments),
        f"{training.outer_learning_rate:g}, {training.outer_momentum:g}",
        str(exact),
        f"{statistics.mean(one.loss for one in runs):.4f}",
        f"{100 * statistics.mean(against):+.2f} % ({', '.join(f'{100 * one:+.2f}' for one in against)})",
        f"1/{base[0].sent_bytes / runs[0].sent_bytes:.1f}",
        f"{runs[0].peak_bytes / 1e6:.3f}",
    ]
    return f"| {' | '.join(cells)} |"


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
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="seeds, each with a run of each kind")
    parser.add_argument("--every", type=int, nargs="+", default=[30], help="values of sync_every next to 1")
    parser.add_argument("--fragments", type=int, nargs="+", default=[1], help="values of sync_fragments")
    rate, momentum = [OUTER_LEARNING_RATE], [OUTER_MOMENTUM]
    parser.add_argument("--outer-learning-rate", type=float, nargs="+", default=rate, help="outer learning rates")
    parser.add_argument("--outer-momentum", type=float, nargs="+", default=momentum, help="outer momenta")
    parser.add_argument("--synchronous", type=int, nargs="+", default=[0], help="first steps with sums of gradients")
    arguments = parser.parse_args()
    model = job_of(arguments, 0).model
    print(f"{total_parameters(model) / 1e6:.2f} million weights, {arguments.slices} slices, {arguments.steps} steps of")
    print(f"{arguments.rows} rows of {arguments.length} tokens, learning rate {arguments.learning_rate}", flush=True)
    found: dict[int, list[Trained]] = {}
    kinds: list[tuple[TrainingSpec, int]] = []
    for seed in arguments.seeds:
        job = job_of(arguments, seed)
        with opened(job) as slices:
            kinds = [(job.training, 0), *product(with_outer_steps(job, arguments), arguments.synchronous)]
            for number, kind in enumerate(kinds):
                one = slices.train(*kind)
                found.setdefault(number, []).append(one)
                about = row_of(kind, [one], found[0][-1:])
                print(f"seed {seed}, {one.seconds:.0f} s: {about}", flush=True)
    settings = ("sync_every", "fragments", "outer rate, momentum", "exact steps")
    heads = (*settings, "loss", "against 1, each seed", "bytes", "peak MB")
    print(f"\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for number, kind in enumerate(kinds):
        print(row_of(kind, found[number], found[0]))


if __name__ == "__main__":
    main()

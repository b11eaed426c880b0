"""Measures a training step on the cores of this machine: `python -m benchmarks.cpu_step [--levanter-python PATH]`.

Three processes take turns with a few steps each for several rounds: only the matrix products of the step, this trainer,
and Levanter if the Python of an environment with it is given. The benchmark prints the median and the quartiles of the
quotients of all rounds, because seconds vary with the machine and its load much more than quotients. On a busy machine
the quotients of processor time are more reliable, but they do not include cores that wait for each other. All start
from batches on the device. This module is also the second of the three processes.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.matmuls import products
from benchmarks.training_job import Ready, StepProcess, answer_requests, job
from workloads.spec import JobSpec

TRAINER, PRODUCTS = "this trainer", "products alone"

LEVANTER = "benchmarks/peers/levanter_step.py"

LEVANTER_ATTENTION = ("vanilla", "jax_flash")
"""Levanter's two implementations on a CPU. The second is the default. The faster one counts."""

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class Contender:
    """A process that takes steps, with the times of its steps in each round."""

    name: str
    process: StepProcess
    seconds: list[float] = field(default_factory=list[float])
    """Time of the median step of each round."""
    processor_seconds: list[float] = field(default_factory=list[float])
    """Processor time of the mean step of each round."""

    def take(self, steps: int) -> None:
        """Take the steps of a round."""
        before = self.process.processor_seconds
        self.seconds.append(statistics.median(self.process.take(steps)))
        self.processor_seconds.append((self.process.processor_seconds - before) / steps)


def compare(contenders: Sequence[Contender], rounds: int, steps: int) -> None:
    """Let all contenders take turns."""
    for contender in contenders:
        contender.process.take(WARM_UP_STEPS)
    for _ in range(rounds):
        for contender in contenders:
            contender.take(steps)


def quotients(numerator: Contender, denominator: Contender) -> str:
    """Return the median and quartiles over the rounds, of seconds and of processor time."""
    return (
        f"{_quartiles(numerator.seconds, denominator.seconds)},"
        f" of processor time {_quartiles(numerator.processor_seconds, denominator.processor_seconds)}"
    )


def _quartiles(numerators: Sequence[float], denominators: Sequence[float]) -> str:
    each = [above / below for above, below in zip(numerators, denominators, strict=True)]
    low, middle, high = statistics.quantiles(each, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def report(contenders: Sequence[Contender]) -> None:
    """Print the table. The first contender is the products, the second is this trainer."""
    alone, trainer, *peers = contenders
    operations = sum(product.operations for product in products(job("")))
    print(f"{'':22}{'s a step':>9}{'CPU s':>7}{'GFLOP/s':>9}")
    for contender in contenders:
        seconds, processor = map(statistics.median, (contender.seconds, contender.processor_seconds))
        print(f"{contender.name:22}{seconds:>9.3f}{processor:>7.2f}{operations / seconds / 1e9:>9.0f}")
    print(f"{operations / 1e9:.1f} GFLOP a step; {trainer.process.ready.parameters / 1e6:.2f} M parameters")
    print(f"rate of this trainer's step / rate of its products alone: {quotients(alone, trainer)}")
    for peer in peers:
        print(f"{peer.name} / this trainer: {quotients(peer, trainer)}")
        print(f"  {peer.process.ready.parameters / 1e6:.2f} M parameters, {peer.process.ready.versions}")


def take_own_steps() -> None:
    """Take this trainer's steps in this process."""
    began, spec = float(sys.argv[2]), JobSpec.model_validate_json(sys.argv[3])
    started = time.time()
    import jax  # Imported here, because importing is measured.
    import numpy as np

    from workloads.data.manifest import token_type
    from workloads.training.mesh import build_mesh
    from workloads.training.step import Program

    imported = time.time()
    program = Program(spec, build_mesh(spec.mesh, spec.slices, jax.devices()))
    state = program.compile_initial()()
    initialised = time.time()
    shape = (spec.training.global_batch, spec.training.sequence_length + 1)
    tokens = np.random.default_rng(0).integers(0, spec.model.vocab_size, shape, token_type(spec.model.vocab_size))
    batch = jax.device_put(tokens, program.batch_sharding)
    compiled = program.compile_step()

    def step() -> None:
        nonlocal state
        state, result = compiled(state, batch)
        float(result.loss)
        jax.block_until_ready(state)

    step()
    parts = {
        "python": started - began,
        "import": imported - started,
        "initialise": initialised - imported,
        "step": time.time() - initialised,
    }
    parameters = sum(leaf.size for leaf in jax.tree.leaves(state.parameters))
    answer_requests(step, Ready(parts, parameters, {"jax": jax.__version__}))


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cpu_step")
    parser.add_argument(
        "--levanter-python", help="Python of an environment with marin-levanter; see docs/explanation/benchmarks.md"
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3, help="steps of each process in a round (%(default)s)")
    given = parser.parse_args()
    commands = {
        PRODUCTS: [sys.executable, "-m", "benchmarks.matmuls"],
        TRAINER: [sys.executable, "-m", "benchmarks.cpu_step", "own"],
    }
    if given.levanter_python:
        commands |= {f"levanter, {way}": [given.levanter_python, LEVANTER, way] for way in LEVANTER_ATTENTION}
    with ExitStack() as running:
        contenders = [
            Contender(name, running.enter_context(StepProcess(command, {}))) for name, command in commands.items()
        ]
        compare(contenders, given.rounds, given.steps)
        report(contenders)


if __name__ == "__main__":
    take_own_steps() if sys.argv[1:2] == ["own"] else main()

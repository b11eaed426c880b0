"""Compares a training step on a CPU with its matrix products alone: `python -m benchmarks.cpu_step`.

Both take turns with a few steps each for several rounds. The benchmark prints the median and the quartiles of the
quotients of all rounds, because seconds vary with the machine and its load much more than quotients. On a busy machine
the quotients of processor time are more reliable, but they do not include cores that wait for each other. Both start
from arrays on the device.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.workloads.jobs import changed, small_job
from workloads.spec import JobSpec

_MODEL = {
    "vocab_size": 8192,
    "embed_dim": 256,
    "mlp_dim": 1024,
    "layers": 4,
    "query_heads": 4,
    "kv_heads": 4,
    "head_dim": 64,
    "tied_embedding": False,
}
_ROUNDS, _STEPS = 10, 3
"""Number of rounds, and of steps of each in a round."""


def job(storage: Path) -> JobSpec:
    """Return a job with four layers on one CPU device. It runs within a minute, and matmuls dominate its time."""
    spec = small_job(storage, replica=1, fsdp=1, global_batch=8, sequence_length=256)
    return changed(spec, model=_MODEL, data={"max_bytes": 1 << 20})


@dataclass(frozen=True)
class Product:
    """A product [batch, rows, inner] x [batch, inner, columns], which a step runs `times` times."""

    batch: int
    rows: int
    inner: int
    columns: int
    times: int

    @property
    def operations(self) -> int:
        """Number of operations of all runs. A multiplication and an addition are two operations."""
        return 2 * self.batch * self.rows * self.inner * self.columns * self.times


def products(job: JobSpec) -> list[Product]:
    """Return the products of a step with full remat: forward, backward, and the forward pass of each layer again.

    The second forward pass of a layer omits the last product, because no gradient depends on it. The loss head has no
    second forward pass. Scores are computed for all pairs of positions, as in a dense product.
    """
    model, length = job.model, job.training.sequence_length
    tokens = job.training.global_batch * length
    heads = job.training.global_batch * model.query_heads
    query, key = model.query_heads * model.head_dim, model.kv_heads * model.head_dim
    layer = [
        *_by_weight(tokens, model.embed_dim, query + 2 * key, forwards=2),
        # Scores and values: twice forward, and backward for both operands.
        Product(heads, length, model.head_dim, length, 2 + 1),
        Product(heads, length, length, model.head_dim, 2 + 3),
        *_by_weight(tokens, query, model.embed_dim, forwards=2),
        *_by_weight(tokens, model.embed_dim, model.mlp_dim, forwards=2),
        *_by_weight(tokens, model.embed_dim, model.mlp_dim, forwards=2),
        *_by_weight(tokens, model.mlp_dim, model.embed_dim, forwards=1),
    ]
    return [*layer * model.layers, *_by_weight(tokens, model.embed_dim, model.vocab_size, forwards=1)]


def _by_weight(tokens: int, inputs: int, outputs: int, forwards: int) -> list[Product]:
    """Return the products of a weight: forward, gradient of the input, gradient of the weight."""
    return [
        Product(1, tokens, inputs, outputs, forwards),
        Product(1, tokens, outputs, inputs, 1),
        Product(1, inputs, tokens, outputs, 1),
    ]


def only_products(spec: JobSpec) -> Callable[[], None]:
    """Return a step that only multiplies. Each product runs with operands in the layout that suits it best."""
    import jax
    import jax.numpy as jnp

    multiply = jax.jit(jnp.matmul)

    def operands(product: Product) -> list[jax.Array]:
        batch = () if product.batch == 1 else (product.batch,)
        shapes = (*batch, product.rows, product.inner), (*batch, product.inner, product.columns)
        return list(map(jax.random.normal, jax.random.split(jax.random.key(0)), shapes))

    work = [pair for product in products(spec) for pair in [operands(product)] * product.times]

    def step() -> None:
        for pair in work:
            multiply(*pair).block_until_ready()

    return step


def trainer(spec: JobSpec) -> Callable[[], None]:
    """Return a step of this trainer."""
    import jax

    from workloads.data.token_folder import token_type
    from workloads.training.mesh import build_mesh
    from workloads.training.step import Program

    program = Program(spec, build_mesh(spec.mesh, spec.slices, jax.devices()))
    state = program.compile_initial()()
    shape = (spec.training.global_batch, spec.training.sequence_length + 1)
    tokens = np.random.default_rng(0).integers(0, spec.model.vocab_size, shape, token_type(spec.model.vocab_size))
    batch, compiled = jax.device_put(tokens, program.batch_sharding), program.compile_step()

    def step() -> None:
        nonlocal state
        state, result = compiled(state, batch)
        float(result.loss)
        jax.block_until_ready(state)

    return step


def _seconds(step: Callable[[], None]) -> tuple[float, float]:
    """Return the time of the median step of a round, and the processor time of its mean step."""
    seconds, before = list[float](), time.process_time()
    for _ in range(_STEPS):
        began = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds), (time.process_time() - before) / _STEPS


def main() -> None:
    """Print the comparison."""
    os.environ |= {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "1"}
    spec = job(Path())
    steps = {"products alone": only_products(spec), "this trainer": trainer(spec)}
    for step in steps.values():
        step()
    # [rounds, steps, time and processor time]
    found = np.array([[_seconds(step) for step in steps.values()] for _ in range(_ROUNDS)])
    operations = sum(product.operations for product in products(spec))
    print(f"{'':22}{'s a step':>9}{'CPU s':>7}{'GFLOP/s':>9}")
    for name, (seconds, processor) in zip(steps, np.median(found, axis=0), strict=True):
        print(f"{name:22}{seconds:>9.3f}{processor:>7.2f}{operations / seconds / 1e9:>9.0f}")
    quartiles = np.quantile(found[:, 0] / found[:, 1], (0.25, 0.5, 0.75), axis=0)
    quotients = [f"{middle:.2f} ({low:.2f} to {high:.2f})" for low, middle, high in quartiles.T]
    rates = "rate of this trainer / rate of its products alone"
    print(f"{operations / 1e9:.1f} GFLOP a step; {rates}: {', of processor time '.join(quotients)}")


if __name__ == "__main__":
    main()

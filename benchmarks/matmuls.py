"""Runs only the matrix products of a training step, on request: `python -m benchmarks.matmuls BEGAN JOB`.

`cpu_step` starts it. This module lists the products of a step with full remat, with their numbers of operations. Each
product runs alone, with operands in the layout that suits it best. The rest of a step's time is its overhead.
"""

import sys
import time
from dataclasses import dataclass

from benchmarks.training_job import Ready, answer_requests
from workloads.spec import JobSpec, ModelSpec


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
    """Return the products of a step, forward and backward, with the forward pass of each layer computed twice.

    The second forward pass of a layer omits the last product, because no gradient depends on it. The loss head has no
    second forward pass. Scores are computed for all pairs of positions, as in a dense product.
    """
    model = job.model
    tokens = job.training.global_batch * job.training.sequence_length
    query, key = model.query_heads * model.head_dim, model.kv_heads * model.head_dim
    layer = [
        *_by_weight(tokens, model.embed_dim, query + 2 * key, forwards=2),
        *_attention(model, job.training.global_batch, job.training.sequence_length),
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


def _attention(model: ModelSpec, sequences: int, length: int) -> list[Product]:
    """Return the products of attention, with scores and values: twice forward, and backward for both operands."""
    heads = sequences * model.query_heads
    return [
        Product(heads, length, model.head_dim, length, 2 + 1),
        Product(heads, length, length, model.head_dim, 2 + 3),
    ]


def main() -> None:
    """Answer requests. A step is all products, one after the other."""
    began, job = float(sys.argv[1]), JobSpec.model_validate_json(sys.argv[2])
    started = time.time()
    import jax  # Imported here, because importing is measured.
    import jax.numpy as jnp

    imported = time.time()
    multiply = jax.jit(jnp.matmul)

    def operands(product: Product) -> tuple[jax.Array, jax.Array]:
        left, right = jax.random.split(jax.random.key(0))
        batch = () if product.batch == 1 else (product.batch,)
        return (
            jax.random.normal(left, (*batch, product.rows, product.inner)),
            jax.random.normal(right, (*batch, product.inner, product.columns)),
        )

    work = [(operands(product), product.times) for product in products(job)]

    def step() -> None:
        for pair, times in work:
            for _ in range(times):
                multiply(*pair).block_until_ready()

    step()
    parts = {"python": started - began, "import": imported - started, "step": time.time() - imported}
    answer_requests(step, Ready(parts, 0, {"jax": jax.__version__}))


if __name__ == "__main__":
    main()

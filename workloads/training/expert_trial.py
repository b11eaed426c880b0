"""Experts of a layer, for the trial of their grouped products."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from workloads.spec import JobSpec
from workloads.training.experts import Grouped, mlps
from workloads.training.kernel_trial import TriedPart
from workloads.training.layout import Tree
from workloads.training.pointwise import ACTIVATIONS

COMPARED_EXPERTS = 3
"""Number of experts to compare. The middle one gets no tokens."""

MAX_COMPARED_ROWS = 1024
"""Largest number of rows to compare. It is two of the largest blocks."""


@dataclass(frozen=True)
class ExpertPart(TriedPart):
    """The experts of one layer as one device computes them, after the choice of experts for each token."""

    setting: ClassVar[str] = "expert_products"
    plain: ClassVar[str] = "ragged-dot"

    embed_dim: int
    mlp_dim: int
    """Number of columns of each expert on this device."""
    experts: int
    rows: int
    """Number of rows that the device computes at once, one for each token and each of its experts."""
    dtype: str
    activation: str
    vmem_kib: int
    """Memory in KiB that a kernel may use."""

    @classmethod
    def of(cls, spec: JobSpec, per_token: int, experts: int) -> Self:
        return cls(
            embed_dim=spec.model.embed_dim,
            mlp_dim=spec.model.mlp_dim // spec.mesh.tensor,
            experts=experts,
            rows=spec.rows_at_once * spec.training.sequence_length * per_token,
            dtype=spec.training.compute_dtype,
            activation=spec.model.activation,
            vmem_kib=spec.vmem_kib,
        )

    @property
    def name(self) -> str:
        return "expert products"

    def candidates(self, platform: str) -> Mapping[str, Grouped]:
        if platform != "tpu":
            return {}
        # Pallas is imported late, because it takes a while and is needed only on TPUs.
        from workloads.training.megablox import Megablox

        return {"megablox": Megablox(self.vmem_kib), "ragged-dot": jax.lax.ragged_dot}

    @property
    def compared(self) -> Self:
        return replace(self, experts=COMPARED_EXPERTS, rows=min(self.rows, MAX_COMPARED_ROWS))

    def shapes(self, device: Any) -> tuple[Tree, Tree]:
        """Return the shapes of rows, shares and sizes, and of the weights."""
        place, embed, mlp = SingleDeviceSharding(device), self.embed_dim, self.mlp_dim

        def shape(dtype: str, *sizes: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(sizes, dtype, sharding=place)

        into, back = shape(self.dtype, self.experts, embed, mlp), shape(self.dtype, self.experts, mlp, embed)
        rows, shares = shape(self.dtype, self.rows, embed), shape("float32", self.rows)
        return (rows, shares, shape("int32", self.experts)), {"gate": into, "up": into, "down": back}

    def inputs(self, device: Any) -> tuple[Tree, Tree]:
        """Return normal numbers with the deviations of a new model, equal shares, and groups that begin within a block.
        Every other group of three is empty if only these are compared."""
        (rows, shares, _), weights = self.shapes(device)

        def make() -> tuple[Tree, Tree]:
            drawn = {
                name: jax.random.normal(jax.random.key(number), leaf.shape, leaf.dtype) * leaf.shape[1] ** -0.5
                for number, (name, leaf) in enumerate(sorted(weights.items()), start=1)
            }
            given = jax.random.normal(jax.random.key(0), rows.shape, rows.dtype), jnp.full(shares.shape, 0.5)
            return (*given, jnp.asarray(self._sizes())), drawn

        return jax.jit(make, out_shardings=SingleDeviceSharding(device))()

    def _sizes(self) -> np.ndarray:
        """Return sizes of groups that do not begin at a block."""
        ends = np.linspace(0, self.rows, self.experts + 1)[1:].astype(np.int32)
        ends[:-1] += 1
        if self.experts == COMPARED_EXPERTS:
            ends[1] = ends[0]
        return np.diff(ends, prepend=0).astype(np.int32)

    def compiled(self, kernel: Grouped, device: Any, options: Mapping[str, Any]) -> jax.stages.Compiled:
        """Compile ((rows, shares, sizes), weights) -> (outputs, gradients by rows, shares and weights)."""

        def both(given: Tree, weights: Tree) -> Tree:
            return self._both(kernel, given, weights)

        return jax.jit(both).lower(*self.shapes(device)).compile(dict(options))

    def expected(self, device: Any) -> list[np.ndarray]:
        given, weights = jax.tree.map(
            lambda leaf: leaf.astype(jnp.float32) if leaf.dtype != jnp.int32 else leaf, self.inputs(device)
        )

        def plainly(rows: jax.Array, matrices: jax.Array, sizes: jax.Array) -> jax.Array:
            ends = jnp.cumsum(sizes)
            group = jnp.sum(jnp.arange(self.rows)[:, None] >= ends[None], axis=1)
            own = [jnp.where((group == number)[:, None], rows @ matrix, 0) for number, matrix in enumerate(matrices)]
            return sum(own[1:], own[0])

        with jax.default_matmul_precision("highest"):
            return self.vectors(jax.jit(lambda *both: self._both(plainly, *both))(given, weights))

    def vectors(self, results: Tree) -> list[np.ndarray]:
        """Return outputs and gradients as [S, N]. S has the rows of all experts, because the gradient by the matrix of
        an expert without tokens is zero. The shares are one vector."""
        leaves = (np.asarray(leaf, np.float32) for leaf in jax.tree.leaves(results))
        return [leaf.reshape(-1, leaf.shape[-1]) for leaf in leaves]

    def _both(self, grouped: Grouped, given: Tree, weights: Tree) -> Tree:
        rows, shares, sizes = given

        def outputs(rows: jax.Array, shares: jax.Array, weights: Tree) -> jax.Array:
            return mlps(rows, weights, sizes, shares, ACTIVATIONS[self.activation], grouped)

        found, pull_back = jax.vjp(outputs, rows, shares, weights)
        return found, pull_back(jnp.cos(found))

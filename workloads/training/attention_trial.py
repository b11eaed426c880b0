"""Attention of a layer, for the trial of its kernels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import SingleDeviceSharding

from workloads.spec import JobSpec, Kernel, ModelSpec
from workloads.training import attention
from workloads.training.attention import Heads, mix_plainly
from workloads.training.kernel_trial import TriedPart
from workloads.training.pointwise import rotation

CANDIDATES: tuple[Kernel, ...] = ("fused", "splash", "splash-2048")
"""Kernels to test, in the order of estimated speed. `splash-2048` has fewer matrix products than `splash`, but adds up
more partial gradients outside of its kernel."""

MAX_COMPARED_POSITIONS = 4096
"""Largest number of positions to compare, because plain attention holds all scores in memory. It is two of the largest
blocks."""

type Mix = Callable[[jax.Array, attention.Sequence], jax.Array]
"""Function that computes attention of [B, K (G + 2) H, S], with the results of `tpu_attention.mix_by_kernel`."""


@dataclass(frozen=True)
class AttentionPart(TriedPart):
    """Attention of one layer as one device computes it. Its input is projected [B, K (G + 2) H, S]."""

    setting: ClassVar[str] = "attention"
    plain: ClassVar[str] = "reference"

    model: ModelSpec
    kv_heads: int
    """Number of kv heads on this device."""
    sequences: int
    """Number of sequences that the device computes at once."""
    positions: int
    dtype: str
    segmented: bool

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        return cls(
            model=spec.model,
            kv_heads=spec.model.kv_heads // spec.mesh.tensor,
            sequences=spec.rows_at_once,
            positions=spec.training.sequence_length,
            dtype=spec.training.compute_dtype,
            segmented=spec.training.document_end is not None,
        )

    @property
    def name(self) -> str:
        return "attention"

    def candidates(self, platform: str) -> Mapping[str, Mix]:
        if platform != "tpu":
            return {}
        # Pallas is imported late, because it takes a while and is needed only on TPUs.
        from workloads.training.tpu_attention import mix_by_kernel

        def mix(kernel: Kernel) -> Mix:
            heads = Heads.of(self.model, kernel)
            if kernel == "fused":
                # `fused` refuses windows. The others compute layers with and without one.
                heads = replace(heads, window=self.model.window("local"))
            return lambda projected, sequence: mix_by_kernel(projected, heads, sequence)

        return {kernel: mix(kernel) for kernel in CANDIDATES}

    @property
    def compared(self) -> Self:
        """Return one sequence and one kv head, with enough positions for blocks of the same size."""
        fewest = ceil(self.positions / MAX_COMPARED_POSITIONS)
        parts = range(fewest, self.positions // 128 + 1)
        length = next((self.positions // count for count in parts if self.positions % (128 * count) == 0), None)
        return replace(self, kv_heads=1, sequences=1, positions=length or min(self.positions, MAX_COMPARED_POSITIONS))

    @property
    def compiled_alone(self) -> Self:
        """Return one sequence: kernels process sequences one after the other."""
        return replace(self, sequences=1)

    @property
    def rows(self) -> int:
        """Number of query heads, key and value of one kv head."""
        return self.model.queries_per_kv_head + 2

    def shapes(self, device: Any) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct | None]:
        """Return shapes of the projected input, and of segments if documents are separated."""
        place = SingleDeviceSharding(device)
        features = self.kv_heads * self.rows * self.model.head_dim
        segments = jax.ShapeDtypeStruct((self.sequences, self.positions), jnp.int32, sharding=place)
        projected = jax.ShapeDtypeStruct((self.sequences, features, self.positions), self.dtype, sharding=place)
        return projected, segments if self.segmented else None

    def inputs(self, device: Any) -> tuple[jax.Array, jax.Array | None]:
        """Return normal numbers, as after a norm and an untrained projection, and documents of 1/5 of the sequence."""
        projected, segments = self.shapes(device)

        def make() -> tuple[jax.Array, jax.Array | None]:
            values = jax.random.normal(jax.random.key(0), projected.shape, projected.dtype)
            documents = jnp.arange(self.positions, dtype=jnp.int32) * 5 // self.positions
            return values, jnp.broadcast_to(documents, segments.shape) if segments else None

        return jax.jit(make, out_shardings=SingleDeviceSharding(device))()

    def compiled(self, kernel: Mix, device: Any, options: Mapping[str, Any]) -> jax.stages.Compiled:
        """Compile (projected, segments) -> (mixed, gradient by projected)."""
        return jax.jit(partial(self._both, kernel)).lower(*self.shapes(device)).compile(dict(options))

    def expected(self, device: Any) -> list[np.ndarray]:
        projected, segments = self.inputs(device)
        wide, heads = replace(self, dtype="float32"), Heads.of(self.model, "reference")

        def plain(projected: jax.Array, sequence: attention.Sequence) -> jax.Array:
            return mix_plainly(wide._by_heads(projected), heads, sequence)

        with jax.default_matmul_precision("highest"):
            return self.vectors(jax.jit(partial(wide._both, plain))(projected.astype(jnp.float32), segments))

    def vectors(self, results: tuple[jax.Array, jax.Array]) -> list[np.ndarray]:
        """Return results by heads [B, K, rows, S, H]."""
        return [np.asarray(self._by_heads(each), np.float32) for each in results]

    def _by_heads(self, values: jax.Array) -> jax.Array:
        """Reshape [B, K rows H, S] to [B, K, rows, S, H]. Values may already have that shape."""
        if values.ndim > 3:
            return values
        shape = (self.sequences, self.kv_heads, -1, self.model.head_dim, self.positions)
        return jnp.swapaxes(values.reshape(shape), -1, -2)

    def _both(self, mix: Mix, projected: jax.Array, segments: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        sequence = attention.Sequence(rotation(self.model, self.positions), segments)
        mixed, pull_back = jax.vjp(lambda projected: mix(projected, sequence), projected)
        return mixed, pull_back(jnp.cos(mixed))[0]

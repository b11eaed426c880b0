from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from workloads.training.kernels.attention import KEPT_NAME, VMEM_LIMIT_BYTES, HeadShape, fused_attention


@dataclass(frozen=True)
class Case:
    shape: HeadShape
    sequences: int
    length: int
    segmented: bool
    dtype: Any = jnp.float32
    tolerance: float = 2e-6
    """Of values and gradients, as a share of the reference's norm."""


# 384 tokens are three blocks of 128 queries and keys, 640 are five, 1024 are two of the longest, 512.
CASES = [
    pytest.param(Case(HeadShape(2, 4, 64), 2, 384, segmented=False), id="head 64, group 4"),
    pytest.param(Case(HeadShape(2, 1, 64), 2, 640, segmented=True), id="head 64, group 1, segments"),
    pytest.param(Case(HeadShape(2, 1, 128), 1, 384, segmented=False), id="head 128, group 1"),
    pytest.param(Case(HeadShape(1, 4, 128), 2, 384, segmented=True), id="head 128, group 4, segments"),
    pytest.param(Case(HeadShape(1, 2, 64), 1, 1024, segmented=True), id="longest blocks"),
    pytest.param(Case(HeadShape(1, 8, 16), 1, 48, segmented=True), id="one block of odd length"),
    # bfloat16 keeps 8 bits: weights, scores' gradients and results are each rounded by up to 2^-9.
    pytest.param(Case(HeadShape(2, 4, 64), 1, 384, True, jnp.bfloat16, 6e-3), id="bfloat16, head 64"),
    pytest.param(Case(HeadShape(1, 4, 128), 1, 384, False, jnp.bfloat16, 6e-3), id="bfloat16, head 128"),
]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_whole_score_matrices(case: Case) -> None:
    z, rotation, segments, weights = inputs(case)

    def ours(z: jax.Array) -> jax.Array:
        return fused_attention(z, rotation, segments, shape=case.shape, interpret=True)

    wide = z.astype(jnp.float32)
    value, gradient = value_and_gradient(ours, weights.astype(case.dtype), z)
    expected_value, expected_gradient = value_and_gradient(lambda z: plain(z, case, segments), weights, wide)
    assert value.dtype == gradient.dtype == case.dtype
    assert distance(value, expected_value) < case.tolerance
    for name, part, expected_part in zip(
        ("query", "key", "value"), parts(gradient, case.shape), parts(expected_gradient, case.shape), strict=True
    ):
        assert distance(part, expected_part) < case.tolerance, name


def test_two_runs_are_bitwise_equal() -> None:
    case = Case(HeadShape(2, 2, 64), 2, 384, True, jnp.bfloat16)
    z, rotation, segments, weights = inputs(case)

    def run() -> tuple[jax.Array, jax.Array]:
        return value_and_gradient(
            lambda z: fused_attention(z, rotation, segments, shape=case.shape, interpret=True),
            weights.astype(case.dtype),
            z,
        )

    for first, second in zip(run(), run(), strict=True):
        np.testing.assert_array_equal(np.asarray(first, np.float32), np.asarray(second, np.float32))


@pytest.mark.parametrize(("kept", "forward_kernels"), [((), 2), ((KEPT_NAME,), 1)])
def test_the_forward_kernel_is_not_run_again_if_its_results_are_kept(kept: tuple[str, ...], forward_kernels: int):
    case = Case(HeadShape(1, 2, 64), 1, 128, segmented=False)
    z, rotation, _, _ = inputs(case)
    policy = jax.checkpoint_policies.save_only_these_names(*kept)

    @jax.grad
    def gradient(z: jax.Array) -> jax.Array:
        layer = jax.checkpoint(
            lambda z: fused_attention(2 * z, rotation, None, shape=case.shape, interpret=True), policy=policy
        )
        return layer(z).sum()

    program = str(jax.make_jaxpr(gradient)(z))
    assert program.count("name=causal_attention_forward") == forward_kernels
    assert program.count("name=causal_attention_backward") == 1


def test_what_the_kernels_cannot_take_is_refused_with_what_to_do() -> None:
    shape = HeadShape(8, 4, 128)

    def run(rows: int, length: int) -> None:
        z = jax.ShapeDtypeStruct((1, rows, length), jnp.bfloat16)
        cos = jax.ShapeDtypeStruct((64, length), jnp.float32)
        jax.eval_shape(
            lambda z, cos: fused_attention(z, (cos, cos), None, shape=shape, interpret=False), z, cos
        )  # fmt: skip

    run(48 * 128, 16384)
    with pytest.raises(ValueError, match=rf"32768 tokens .* may take {VMEM_LIMIT_BYTES >> 20} MiB.* attention: splash"):
        run(48 * 128, 32768)
    with pytest.raises(ValueError, match="100 tokens; this kernel takes multiples of 128"):
        run(48 * 128, 100)
    with pytest.raises(ValueError, match=r"z has 5120 rows, but .* needs 6144"):
        run(40 * 128, 8192)


@pytest.mark.parametrize("head_dim", [64, 128])
def test_compiled_for_v6e_both_kernels_carry_the_causal_flops(head_dim: int) -> None:
    shape, length, sequences = HeadShape(2, 4, head_dim), 8192, 2
    mesh = Mesh(np.array(topologies.get_topology_desc("v6e:2x2", platform="tpu").devices), ("chip",))
    per_chip, whole = PartitionSpec("chip"), PartitionSpec()

    def local(z: jax.Array, rotation: Any, segments: jax.Array, d_mixed: jax.Array) -> jax.Array:
        _, pull_back = jax.vjp(lambda z: fused_attention(z, rotation, segments, shape=shape, interpret=False), z)
        return pull_back(d_mixed)[0]

    def like(dimensions: tuple[int, ...], dtype: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dimensions, dtype, sharding=NamedSharding(mesh, spec))

    angles = like((head_dim // 2, length), jnp.float32, whole)
    batch = sequences * mesh.size
    text = (
        jax.jit(
            jax.shard_map(
                local, mesh=mesh, in_specs=(per_chip, whole, per_chip, per_chip), out_specs=per_chip, check_vma=False
            )
        )
        .lower(
            like((batch, 12 * head_dim, length), jnp.bfloat16, per_chip),
            (angles, angles),
            like((batch, length), jnp.int32, per_chip),
            like((batch, 8 * head_dim, length), jnp.bfloat16, per_chip),
        )
        .compile()
        .as_text()
    )
    assert text is not None
    product = sequences * 8 * head_dim * length**2
    assert [line.count(f'"flops":"{flops * product}"') for flops in (2, 5) for line in [text]] == [1, 1]


def inputs(case: Case) -> tuple[jax.Array, Any, jax.Array | None, jax.Array]:
    shape, keys = case.shape, jax.random.split(jax.random.key(0), 3)
    rows = shape.kv_heads * shape.group * shape.head_dim
    z = jax.random.normal(keys[0], (case.sequences, rows + 2 * shape.kv_heads * shape.head_dim, case.length))
    weights = jax.random.normal(keys[1], (case.sequences, rows, case.length))
    segments = jnp.sort(jax.random.randint(keys[2], (case.sequences, case.length), 0, 4), axis=1)
    angles = rotation_angles(case)
    return z.astype(case.dtype), (jnp.cos(angles), jnp.sin(angles)), segments if case.segmented else None, weights


def rotation_angles(case: Case) -> jax.Array:
    half = case.shape.head_dim // 2
    return jnp.outer(1e4 ** (-jnp.arange(half) / half), jnp.arange(case.length))


def value_and_gradient(
    attend: Callable[[jax.Array], jax.Array], weights: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array]:
    @jax.jit
    def both(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        mixed, pull_back = jax.vjp(attend, z)
        return mixed, pull_back(weights)[0]

    return both(z)


def plain(z: jax.Array, case: Case, segments: jax.Array | None) -> jax.Array:
    """The same by whole score matrices [queries, keys], one head after the other, rotated as complex numbers."""
    turns = jnp.exp(1j * rotation_angles(case))[None]
    position = jnp.arange(case.length)
    may_attend = (position[:, None] >= position[None])[None]
    if segments is not None:
        may_attend &= segments[:, :, None] == segments[:, None]
    mixed: list[jax.Array] = []
    query_heads, key_heads, value_heads = parts(z, case.shape)
    for head, query in enumerate(query_heads):
        key, value = (heads[head // case.shape.group] for heads in (key_heads, value_heads))
        scores = jnp.einsum("bhq,bhk->bqk", turned(query, turns), turned(key, turns)) / case.shape.head_dim**0.5
        attention = jax.nn.softmax(jnp.where(may_attend, scores, -jnp.inf), axis=-1)
        mixed.append(jnp.einsum("bqk,bhk->bhq", attention, value))
    return jnp.concatenate(mixed, axis=1)


def turned(x: jax.Array, turns: jax.Array) -> jax.Array:
    first, second = jnp.split(x, 2, axis=1)
    turned = (first + 1j * second) * turns
    return jnp.concatenate([turned.real, turned.imag], axis=1)


def parts(z: jax.Array, shape: HeadShape) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Query, key and value heads of z, each [heads, B, H, S]."""
    heads = z.reshape(z.shape[0], shape.kv_heads, shape.group + 2, shape.head_dim, -1)
    query = heads[:, :, : shape.group].reshape(z.shape[0], -1, *heads.shape[3:])
    return tuple(jnp.moveaxis(part, 1, 0) for part in (query, heads[:, :, -2], heads[:, :, -1]))  # pyright: ignore


def distance(got: jax.Array, expected: jax.Array) -> float:
    """Norm of the difference as a share of the norm."""
    return float(jnp.linalg.norm((got.astype(jnp.float32) - expected).ravel()) / jnp.linalg.norm(expected.ravel()))

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AbstractDevice, AbstractMesh, Mesh, NamedSharding, PartitionSpec

from tests.workloads.plain_model import plain_attention, plain_frequencies, plain_visibility
from tests.workloads.preflight.jobs import slices_of
from workloads.preflight.topology import describe_devices
from workloads.spec import ModelSpec
from workloads.training.failures import InvalidSpec
from workloads.training.kernels.attention import HeadShape, fused_attention
from workloads.training.remat import ATTENTION


@dataclass(frozen=True)
class Case:
    shape: HeadShape
    sequences: int
    length: int
    segmented: bool
    dtype: Any = jnp.float32
    tolerance: float = 2e-6
    """Tolerance of values and gradients, relative to the reference's norm."""

    @property
    def model(self) -> ModelSpec:
        """A model with these heads."""
        shape = self.shape
        heads = {"query_heads": shape.kv_heads * shape.group, "kv_heads": shape.kv_heads, "head_dim": shape.head_dim}
        return ModelSpec.model_validate(dict.fromkeys(("vocab_size", "embed_dim", "mlp_dim", "layers"), 1) | heads)


# 384 tokens are three blocks of 128 queries and keys, 1024 are two of the longest, 96 are one.
CASES = [
    pytest.param(Case(HeadShape(2, 1, 64), 1, 1024, segmented=True), id="head 64, group 1, segments, longest blocks"),
    pytest.param(Case(HeadShape(2, 1, 128), 2, 96, segmented=False), id="head 128, group 1, one block"),
    pytest.param(Case(HeadShape(1, 4, 128), 2, 384, segmented=True), id="head 128, group 4, segments"),
    # bfloat16 keeps 8 bits: weights, scores' gradients and results are each rounded by up to 2^-9.
    pytest.param(
        Case(HeadShape(2, 4, 64), 1, 384, True, jnp.bfloat16, 6e-3), id="bfloat16, head 64, group 4, segments"
    ),
]


@pytest.mark.costs(cpu_seconds=10)
@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_those_of_whole_score_matrices(case: Case) -> None:
    z, rotation, segments, d_mixed = inputs(case)
    value, gradient = value_and_gradient(
        lambda z: fused_attention(z, rotation, segments, shape=case.shape, interpret=True), d_mixed, z
    )
    wide, d_wide = z.astype(jnp.float32), d_mixed.astype(jnp.float32)
    expected_value, expected_gradient = value_and_gradient(lambda z: plain(z, case, segments), d_wide, wide)
    assert value.dtype == gradient.dtype == case.dtype
    assert distance(np.asarray(value, np.float32), np.asarray(expected_value)) < case.tolerance
    for name, part, expected_part in zip(
        ("query", "key", "value"), parts(gradient, case.shape), parts(expected_gradient, case.shape), strict=True
    ):
        assert distance(part, expected_part) < case.tolerance, name


@pytest.mark.parametrize(("kept", "forward_kernels"), [((), 2), ((ATTENTION,), 1)])
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


def refusal(kind: str, rows: int, length: int) -> str:
    """Return why heads of 128 are refused on chips of that kind. Empty if they are not."""
    z = jax.ShapeDtypeStruct((1, rows, length), jnp.bfloat16)
    cos = jax.ShapeDtypeStruct((64, length), jnp.float32)
    shape = HeadShape(8, 4, 128)
    chips = AbstractMesh((1,), ("chip",), abstract_device=AbstractDevice(kind, 1, "tpu"))
    try:
        with jax.sharding.use_abstract_mesh(chips):
            jax.eval_shape(
                lambda z, cos: fused_attention(z, (cos, cos), None, shape=shape, interpret=False), z, cos
            )  # fmt: skip
    except InvalidSpec as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    ("kind", "longest", "too_long", "most"),
    [
        ("TPU v6 lite", 16384, 32768, "112 MiB of a v6e"),
        ("TPU v5", 8192, 16384, "56 MiB of a v5p"),
        ("TPU7x", 8192, 16384, "56 MiB of a 7x"),
    ],
)
def test_sequences_that_do_not_fit_the_vmem_of_a_chip_are_refused(
    kind: str, longest: int, too_long: int, most: str
) -> None:
    assert refusal(kind, 48 * 128, longest) == ""
    found = refusal(kind, 48 * 128, too_long)
    assert f"{too_long} tokens" in found
    assert f"may use {most}" in found
    assert "attention: splash" in found


def test_what_the_kernels_cannot_take_is_refused_with_what_to_do() -> None:
    assert "100 tokens; this kernel needs multiples of 128" in refusal("TPU v6 lite", 48 * 128, 100)
    with pytest.raises(ValueError, match=r"z has 5120 rows, but .* needs 6144"):
        refusal("TPU v6 lite", 40 * 128, 8192)


@pytest.mark.costs(cpu_seconds=10)
def test_compiled_for_v6e_both_kernels_carry_the_causal_flops() -> None:
    shape, length, sequences = HeadShape(2, 4, 128), 8192, 2
    mesh = Mesh(np.array(describe_devices(slices_of("v6e", "2x2"), {})), ("chip",))
    per_chip, whole = PartitionSpec("chip"), PartitionSpec()

    @jax.jit
    @partial(jax.shard_map, mesh=mesh, in_specs=(per_chip, whole, per_chip), out_specs=per_chip, check_vma=False)
    def gradient(z: jax.Array, rotation: Any, segments: jax.Array) -> jax.Array:
        return jax.grad(lambda z: fused_attention(z, rotation, segments, shape=shape, interpret=False).sum())(z)

    def like(dimensions: tuple[int, ...], dtype: Any, spec: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(dimensions, dtype, sharding=NamedSharding(mesh, spec))

    batch, angles = sequences * mesh.size, like((shape.head_dim // 2, length), jnp.float32, whole)
    z = like((batch, shape.kv_heads * shape.rows * shape.head_dim, length), jnp.bfloat16, per_chip)
    text = gradient.lower(z, (angles, angles), like((batch, length), jnp.int32, per_chip)).compile().as_text()
    # A causal matrix product of one head has 2 x H x S^2/2 FLOPs. The forward pass has two, the backward pass five.
    product = sequences * shape.kv_heads * shape.group * shape.head_dim * length**2
    assert re.findall(r'"flops":"?(\d+)', text or "") == [str(2 * product), str(5 * product)]


def inputs(case: Case) -> tuple[jax.Array, Any, jax.Array | None, jax.Array]:
    """Return z, rotation, segments, and the gradient by the mixed values."""
    shape, draw = case.shape, np.random.default_rng(0)
    rows = shape.kv_heads * shape.group * shape.head_dim
    z = draw.normal(size=(case.sequences, rows + 2 * shape.kv_heads * shape.head_dim, case.length))
    d_mixed = draw.normal(size=(case.sequences, rows, case.length))
    segments = np.sort(draw.integers(0, 4, (case.sequences, case.length)), axis=1)
    angles = jnp.outer(plain_frequencies(case.model), jnp.arange(case.length))
    return (
        jnp.asarray(z, case.dtype),
        (jnp.cos(angles), jnp.sin(angles)),
        jnp.asarray(segments, jnp.int32) if case.segmented else None,
        jnp.asarray(d_mixed, case.dtype),
    )


def value_and_gradient(
    attend: Callable[[jax.Array], jax.Array], d_mixed: jax.Array, z: jax.Array
) -> tuple[jax.Array, jax.Array]:
    def both(z: jax.Array) -> tuple[jax.Array, jax.Array]:
        mixed, pull_back = jax.vjp(attend, z)
        return mixed, pull_back(d_mixed)[0]

    # Compiling would take longer than running.
    return jax.jit(both, compiler_options={"xla_backend_optimization_level": 0})(z)


def plain(z: jax.Array, case: Case, segments: jax.Array | None) -> jax.Array:
    """Compute the same with full score matrices, one head after the other."""
    rows = case.shape.kv_heads * case.shape.group * case.shape.head_dim
    identity = {"query_key_value": jnp.eye(z.shape[1]), "out": jnp.eye(rows)}
    return plain_attention(z.mT, identity, case.model, plain_visibility(z[:, 0], segments)).mT


def parts(z: jax.Array, shape: HeadShape) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows of the query heads, of the keys and of the values."""
    heads = np.asarray(z, np.float32).reshape(z.shape[0], shape.kv_heads, shape.group + 2, -1)
    return heads[:, :, :-2], heads[:, :, -2], heads[:, :, -1]


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the norm of the difference, relative to the norm."""
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))

"""The model on a mesh against a plain model on one device."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.jobs import small_job
from tests.workloads.plain_model import plain_logits
from tests.workloads.training.running import program_of
from workloads.spec import ExpertsSpec, JobSpec, ModelSpec, RopeScaling, WindowSpec
from workloads.training import tables
from workloads.training.model import initial_parameters
from workloads.training.step import TrainState

pytestmark = pytest.mark.costs(cpu_seconds=25)

SPEC = ModelSpec(
    vocab_size=32, embed_dim=16, mlp_dim=24, layers=3, query_heads=4, kv_heads=2, head_dim=8, tied_embedding=False
)
LONG = RopeScaling(factor=8, low_frequency_factor=1, high_frequency_factor=4, original_length=8)
VARIANTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "untied": ({}, {}),
    "tied, stretched": ({"tied_embedding": True, "rope_scaling": LONG, "norm_epsilon": 1e-3}, {}),
    "experts, query and key norms": (
        {"experts": ExpertsSpec(count=4, per_token=2, balance_weight=0), "query_key_norm": True, "score_dim": 5},
        {},
    ),
    "completions": ({}, {"loss_on": "completions", "document_end": 7, "ignored_token": 3}),
    "z-loss, soft caps": ({"attention_soft_cap": 0.3, "logit_soft_cap": 0.5}, {"z_loss": 0.1, "ignored_token": 3}),
    "output norms, gelu": (
        {"output_norms": True, "norm_scales_from_one": True, "scaled_embedding": True, "activation": "gelu"},
        {},
    ),
    "windows": ({"windows": WindowSpec(size=3, pattern=("local", "global"), rope_base=20)}, {"document_end": 7}),
    **{remat: ({}, {"remat": remat}) for remat in ("none", "dots", "full", "offload")},
}


def job(model: dict[str, Any], training: dict[str, Any]) -> JobSpec:
    small = small_job(Path("unused"), sequence_length=12, global_batch=16, **training)
    return small.model_copy(update={"model": SPEC.model_copy(update=model)})


def plain_loss(
    weights: Any, rows: jax.Array, spec: JobSpec, marks: jax.Array | None = None
) -> tuple[jax.Array, jax.Array]:
    """Return the sum of cross-entropy and z-loss, and the z-loss.

    `marks` [batch, position] are 1 at tokens whose prediction does not count.
    """
    inputs, targets = rows[:, :-1], rows[:, 1:]
    segments = None
    if spec.training.document_end is not None:
        segments = jnp.cumsum(jnp.roll(inputs == spec.training.document_end, 1, axis=1).at[:, 0].set(False), axis=1)
    counts = jnp.ones(targets.shape)
    if spec.training.ignored_token is not None:
        counts = jnp.where(targets == spec.training.ignored_token, 0.0, 1.0)
    if marks is not None:
        counts *= 1 - marks[:, 1:]
    logits = plain_logits(weights, inputs, spec.model, segments)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=-1)[..., 0]
    squares = jnp.log(jnp.sum(jnp.exp(logits), axis=-1)) ** 2
    z_loss = spec.training.z_loss * jnp.sum(counts * squares) / jnp.sum(counts)
    return z_loss - jnp.sum(counts * picked) / jnp.sum(counts), z_loss


def global_norm(gradients: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.square(leaf)) for leaf in jax.tree.leaves(gradients))))


def assert_clipped_gradients(state: TrainState, gradients: Any, spec: JobSpec, tolerance: float) -> None:
    """Compare AdamW's first moment after one step, which is (1 - beta1) x the clipped gradient."""
    scale = (1 - spec.optimizer.beta1) * min(1, spec.optimizer.clip_norm / global_norm(gradients))
    for found, wanted in zip(jax.tree.leaves(state.optimizer[0].mu), jax.tree.leaves(gradients), strict=True):
        assert np.linalg.norm(found - wanted * scale) < tolerance * np.linalg.norm(wanted * scale)


ONE_CHUNK, CHUNKS = 1 << 30, 32 * 4 * 8
CASES = [
    *(
        pytest.param(name, ONE_CHUNK, marks=pytest.mark.complete if name in ("none", "dots") else ())
        for name in VARIANTS
        if "z-loss" not in name
    ),
    ("z-loss, soft caps", CHUNKS),
    pytest.param("tied, stretched", CHUNKS, marks=pytest.mark.complete),
]


@pytest.mark.parametrize(("variant", "logits_bytes"), CASES)
def test_loss_and_gradients_on_a_mesh_equal_a_plain_model_on_one_device(
    variant: str, logits_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "LOGITS_BYTES_PER_CHUNK", logits_bytes)
    spec = job(*VARIANTS[variant])
    rows = np.random.default_rng(0).integers(0, 32, (16, 13))
    marks = prompts(rows) if spec.training.loss_on == "completions" else None
    weights = initial_parameters(spec.model, spec.training.seed)
    (both, z_loss), gradients = jax.value_and_grad(plain_loss, has_aux=True)(weights, jnp.asarray(rows), spec, marks)
    program = program_of(spec)
    stored = (rows if marks is None else 2 * rows + marks).astype(program.batch.dtype)
    batch = jax.device_put(stored, program.batch_sharding)
    state, result = program.compile_step()(program.compile_initial()(), batch)
    assert float(result.loss) == pytest.approx(float(both - z_loss), rel=1e-6)
    assert float(result.z_loss) == pytest.approx(float(z_loss), rel=1e-6)
    assert float(result.gradient_norm) == pytest.approx(global_norm(gradients), rel=1e-6)
    assert_clipped_gradients(state, gradients, spec, 3e-6)


def prompts(rows: np.ndarray) -> np.ndarray:
    """Return marks at the beginning of each row, with different lengths, so that slices have unequal counts."""
    return (np.arange(rows.shape[1]) < np.arange(len(rows))[:, None] * rows.shape[1] // len(rows)).astype(np.int32)

"""Low-rank adapters on a mesh against a plain model with the matrices W + alpha / rank A B."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.workloads.jobs import changed, validated
from tests.workloads.training.layouts import STAGES, TENSOR, UNEVEN, job_on
from tests.workloads.training.running import program_of
from tests.workloads.training.test_model import SPEC, assert_clipped_gradients, global_norm, plain_loss
from workloads.spec import ExpertsSpec, JobSpec, LoraSpec, WindowSpec
from workloads.training.adapters import initial_adapters, merge_adapters
from workloads.training.layout import Tree
from workloads.training.model import initial_parameters

pytestmark = pytest.mark.costs(cpu_seconds=40)

LORA = LoraSpec(rank=3, alpha=6)
EXPERTS = ExpertsSpec(count=4, per_token=2, balance_weight=0)
MODELS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied": {"tied_embedding": True},
    "experts": {"experts": EXPERTS},
    "gemma": {
        "query_key_norm": True,
        "output_norms": True,
        "norm_scales_from_one": True,
        "activation": "gelu",
        "logit_soft_cap": 3.0,
        "windows": WindowSpec(size=5, pattern=("local", "global")),
    },
}
CASES = [
    *((name, "untied") for name in ("one device", "replica 2 x fsdp 4", TENSOR, STAGES, UNEVEN)),
    *((name, "untied") for name in ("accumulation 4", "accumulation 4, weights gathered once")),
    *((name, model) for name in (TENSOR, STAGES) for model in ("tied", "experts", "gemma")),
]
QUICK = {(TENSOR, "untied"), (STAGES, "tied"), (TENSOR, "experts")}


def job(layout: str, model: str) -> JobSpec:
    sizes = {"sequence_length": 12, "global_batch": 16, "ignored_token": 3}
    adapted = changed(job_on(layout, sizes), training={"lora": LORA})
    return validated(adapted, model=SPEC.model_copy(update={"layers": 4} | MODELS[model]), initial_weights="unused")


def placed(tree: Tree, shapes: Tree) -> Tree:
    return jax.tree.map(lambda leaf, shape: jax.device_put(np.array(leaf, shape.dtype), shape.sharding), tree, shapes)


def adapters_with_values(weights: Tree) -> Tree:
    """Return adapters where neither A nor B is zero."""
    leaves, structure = jax.tree.flatten(initial_adapters(weights, LORA, 5))
    keys = jax.random.split(jax.random.key(6), len(leaves))
    drawn = [leaf + 0.1 * jax.random.normal(key, leaf.shape) for key, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


@pytest.mark.parametrize(
    ("layout", "model"),
    [pytest.param(*case, marks=() if case in QUICK else pytest.mark.complete) for case in CASES],
)
def test_loss_and_gradients_are_those_of_the_textbook_s_sum_of_matrices(layout: str, model: str) -> None:
    spec = job(layout, model)
    rows = np.random.default_rng(0).integers(0, 32, (16, 13))
    weights = initial_parameters(spec.model, 7)
    adapters = adapters_with_values(weights)

    def loss(adapters: Tree) -> jax.Array:
        return plain_loss(merge_adapters(weights, adapters, LORA), jnp.asarray(rows), spec)[0]

    expected, gradients = jax.value_and_grad(loss)(adapters)

    program = program_of(spec)
    frozen = placed(weights, program.frozen_shapes)
    before = jax.tree.map(np.array, frozen)
    padded = np.pad(rows, ((0, program.batch_shape[0] - len(rows)), (0, 0)))
    tokens = jax.device_put(padded.astype(np.uint8), program.batch_sharding)
    begun = replace(program.compile_initial()(), parameters=placed(adapters, program.state_shapes.parameters))
    state, result = program.compile_step()(begun, tokens, frozen)

    assert float(result.loss) == pytest.approx(float(expected), rel=1e-6)
    assert float(result.gradient_norm) == pytest.approx(global_norm(gradients), rel=2e-6)
    assert_clipped_gradients(state, gradients, spec, 5e-6)
    jax.tree.map(np.testing.assert_array_equal, frozen, before)
    total, counted = program.compile_evaluation()(placed(adapters, program.state_shapes.parameters), tokens, frozen)
    assert float(total) / float(counted) == pytest.approx(float(expected), rel=1e-6)

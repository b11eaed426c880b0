"""`workloads.spec.model`: the weights that are counted are those that the model has."""

from pathlib import Path

import jax
import pytest

from tests.workloads.jobs import small_job
from workloads.spec import ExpertsSpec, LoraSpec
from workloads.spec.model import (
    adapter_parameters,
    matrix_parameters,
    state_bytes,
    total_parameters,
    trained_parameters,
)
from workloads.spec.training import LoraTarget
from workloads.training.adapters import initial_adapters
from workloads.training.model import initial_parameters
from workloads.training.optimizer import build_optimizer

MODEL = small_job(Path("somewhere")).model


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"experts": ExpertsSpec(count=4, per_token=4, balance_weight=0)},
        {"query_key_norm": True},
        {"output_norms": True, "norm_scales_from_one": True},
    ],
    ids=str,
)
def test_the_weights_counted_are_those_of_the_model(tied: bool, parts: dict[str, object]) -> None:
    model = MODEL.model_copy(update={"tied_embedding": tied, **parts})
    leaves = jax.tree_util.tree_leaves_with_path(jax.eval_shape(lambda: initial_parameters(model, 0)))
    sizes = {jax.tree_util.keystr(path): leaf.size for path, leaf in leaves}
    assert total_parameters(model) == trained_parameters(model, None) == sum(sizes.values())
    looked_up = 0 if tied else sizes["['embedding']"]
    scales = sum(size for name, size in sizes.items() if "scale" in name)
    assert matrix_parameters(model) == total_parameters(model) - looked_up - scales


@pytest.mark.parametrize("experts", [None, ExpertsSpec(count=4, per_token=2, balance_weight=0)])
@pytest.mark.parametrize("targets", [("query_key_value", "out", "gate", "up", "down"), ("query_key_value", "down")])
def test_the_adapters_counted_are_those_of_the_model(
    experts: ExpertsSpec | None, targets: tuple[LoraTarget, ...]
) -> None:
    model = MODEL.model_copy(update={"experts": experts})
    lora = LoraSpec(rank=4, alpha=8, targets=targets)
    adapters = jax.eval_shape(lambda: initial_adapters(initial_parameters(model, 0), lora, 0))
    count = sum(leaf.size for leaf in jax.tree.leaves(adapters))
    assert trained_parameters(model, lora) == count
    assert (adapter_parameters(model, lora) == count) == (experts is None)
    assert adapter_parameters(model, None) == 0


def test_a_token_is_multiplied_with_its_own_experts_only() -> None:
    experts = [ExpertsSpec(count=8, per_token=number, balance_weight=0) for number in (1, 2)]
    one, two = (matrix_parameters(MODEL.model_copy(update={"experts": each})) for each in experts)
    assert two - one == MODEL.layers * 3 * MODEL.embed_dim * MODEL.mlp_dim
    assert one - matrix_parameters(MODEL) == MODEL.layers * MODEL.embed_dim * 8


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_state_has_at_least_the_bytes_of_its_weights_and_moments(kind: str) -> None:
    optimizer = small_job(Path("somewhere")).optimizer.model_copy(update={"kind": kind})
    parameters = jax.eval_shape(lambda: initial_parameters(MODEL, 0))
    moments = jax.eval_shape(build_optimizer(optimizer, MODEL, 10).init, parameters)
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves((parameters, moments)))
    counted = state_bytes(MODEL, None, optimizer)
    # AdamW's state has the number of its step too.
    assert counted <= held <= counted + (16 if kind == "adamw" else 4 * total_parameters(MODEL))

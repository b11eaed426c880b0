"""Low-rank adapters on a mesh against a plain model with the matrices W + alpha / rank A B, and runs with them."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from tests.workloads.jobs import changed, small_job, validated
from tests.workloads.training.layouts import STAGES, TENSOR, UNEVEN, job_on
from tests.workloads.training.running import Capture, losses, parsed, program_of, run, stopped, trained
from tests.workloads.training.test_model import SPEC, assert_clipped_gradients, global_norm, plain_loss
from workloads.progress import Evaluation, RunStarted
from workloads.spec import ExpertsSpec, JobSpec, LoraSpec, WindowSpec
from workloads.training.adapters import initial_adapters, merge_adapters
from workloads.training.checkpoint import STATE
from workloads.training.export import export
from workloads.training.failures import InvalidSpec
from workloads.training.layout import Tree
from workloads.training.model import initial_parameters
from workloads.training.model import initial_parameters as drawn
from workloads.training.parameter_folder import About, fingerprints, whole_shapes, write

pytestmark = pytest.mark.costs(cpu_seconds=40)

LORA = LoraSpec(rank=3, alpha=6)
EXPERTS = ExpertsSpec(count=4, per_token=2, balance_weight=0)
MODELS: dict[str, dict[str, Any]] = {
    "untied": {},
    "tied": {"tied_embedding": True},
    "experts": {"experts": EXPERTS},
    "gemma": {
        "layers": 4,
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
QUICK = {(STAGES, "tied"), (TENSOR, "untied")}


def job(layout: str, model: str) -> JobSpec:
    sizes = {"sequence_length": 12, "global_batch": 16, "ignored_token": 3}
    adapted = changed(job_on(layout, sizes), training={"lora": LORA})
    return validated(adapted, model=SPEC.model_copy(update={"layers": 2} | MODELS[model]), initial_weights="unused")


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
    assert float(result.gradient_norm) == pytest.approx(global_norm(gradients), rel=4e-6)
    assert_clipped_gradients(state, gradients, spec, 1e-5)
    jax.tree.map(np.testing.assert_array_equal, frozen, before)
    total, counted = program.compile_evaluation()(placed(adapters, program.state_shapes.parameters), tokens, frozen)
    assert float(total) / float(counted) == pytest.approx(float(expected), rel=1e-6)


TUNED = LoraSpec(rank=4, alpha=8)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("weights") / "base", seed=7)


def written(folder: Path, seed: int) -> Path:
    model = small_job(Path("unused")).model
    shapes = whole_shapes(model)
    parameters = jax.tree.map(lambda leaf, shape: jax.device_put(leaf, shape.sharding), drawn(model, seed), shapes)
    about = About(step=0, model=model, sequence_length=64, fingerprints=fingerprints(parameters), manifest={})
    write(epath.Path(folder), parameters, about)
    return folder


def tuning(storage: Path, weights: Path, lora: LoraSpec | None = TUNED) -> JobSpec:
    """Return a job that is evaluated after each step."""
    adapted = changed(small_job(storage, evaluate_every_steps=1), training={"lora": lora})
    return validated(adapted, initial_weights=str(weights))


def evaluation(lines: list[str]) -> float:
    """Return the loss of the last evaluation."""
    return parsed(Evaluation, lines)[-1].loss


def test_a_run_saves_adapters_only_and_goes_on_bitwise_where_it_was(
    tmp_path: Path, weights: Path, capsys: Capture
) -> None:
    uninterrupted = losses(trained(tuning(tmp_path / "one", weights), capsys))
    before = losses(stopped(tuning(tmp_path / "two", weights), 5, capsys))
    moved = Path(shutil.copytree(weights, tmp_path / "moved"))
    after = trained(tuning(tmp_path / "two", moved), capsys)
    assert parsed(RunStarted, after) == [RunStarted("run-1", "resumed", 5, 8)]
    assert {**before, **losses(after)} == uninterrupted
    assert uninterrupted[8] < uninterrupted[1]
    saved = ocp.PyTreeCheckpointHandler().metadata(epath.Path(tmp_path / "two/runs/run-1/checkpoints/8") / STATE)
    leaves = jax.tree_util.tree_leaves_with_path(saved.tree["parameters"])
    names = {jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves}
    assert names == {f"blocks.{target}_{part}" for target in TUNED.targets for part in "ab"}


def test_other_weights_than_the_adapters_are_for_are_refused(tmp_path: Path, weights: Path) -> None:
    run(tuning(tmp_path / "run", weights))
    other = written(tmp_path / "other", seed=8)
    with pytest.raises(InvalidSpec, match=r"cannot continue .*initial_weights: expected weights with the digest"):
        run(tuning(tmp_path / "run", other))
    with pytest.raises(InvalidSpec, match=r"training.lora: expected rank=4 alpha=8.* got rank=4 alpha=4"):
        run(tuning(tmp_path / "run", weights, lora=LoraSpec(rank=4, alpha=4)))
    with pytest.raises(InvalidSpec, match=r"other must have the weights that the adapters were trained for, .*give"):
        export(epath.Path(tmp_path / "run/runs/run-1"), epath.Path(tmp_path / "out"), None, epath.Path(other))


def test_the_first_step_is_that_of_the_weights_and_the_export_has_the_adapters_in_them(
    tmp_path: Path, weights: Path, capsys: Capture
) -> None:
    adapted = trained(tuning(tmp_path / "adapters", weights), capsys)
    whole = stopped(tuning(tmp_path / "whole", weights, lora=None), 1, capsys)
    assert losses(adapted)[1] == losses(whole)[1]
    out = tmp_path / "merged"
    export(epath.Path(tmp_path / "adapters" / "runs" / "run-1"), epath.Path(out), None)
    # The first step of the warm-up has a learning rate of 0.
    merged = evaluation(stopped(tuning(tmp_path / "on", out, lora=None), 1, capsys))
    assert merged == pytest.approx(evaluation(adapted), rel=1e-5)
    assert abs(merged - evaluation(whole)) > 1e-3

"""Runs that train adapters of weights in a folder, from the start to the export."""

import shutil
from pathlib import Path

import jax
import orbax.checkpoint as ocp
import pytest
from etils import epath

from tests.workloads.jobs import changed, small_job, validated
from tests.workloads.training.running import Capture, losses, parsed, program_of, run, stopped, trained
from workloads.progress import Evaluation, RunStarted
from workloads.spec import JobSpec, LoraSpec
from workloads.training.checkpoint import STATE
from workloads.training.export import export
from workloads.training.failures import InvalidSpec
from workloads.training.memory import bytes_per_device
from workloads.training.model import initial_parameters as drawn
from workloads.training.parameter_folder import About, fingerprints, whole_shapes, write

pytestmark = pytest.mark.costs(cpu_seconds=40)

LORA = LoraSpec(rank=4, alpha=8)


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


def job(storage: Path, weights: Path, steps: int = 8, lora: LoraSpec | None = LORA) -> JobSpec:
    adapted = changed(small_job(storage, steps=steps), training={"lora": lora})
    return validated(adapted, initial_weights=str(weights))


def evaluation(lines: list[str]) -> float:
    return parsed(Evaluation, lines)[-1].loss


def test_a_run_saves_adapters_only_and_goes_on_bitwise_where_it_was(
    tmp_path: Path, weights: Path, capsys: Capture
) -> None:
    uninterrupted = losses(trained(job(tmp_path / "one", weights), capsys))
    before = losses(stopped(job(tmp_path / "two", weights), 5, capsys))
    moved = Path(shutil.copytree(weights, tmp_path / "moved"))
    after = trained(job(tmp_path / "two", moved), capsys)
    assert parsed(RunStarted, after) == [RunStarted("run-1", "resumed", 5, 8)]
    assert {**before, **losses(after)} == uninterrupted
    assert uninterrupted[8] < uninterrupted[1]
    saved = ocp.PyTreeCheckpointHandler().metadata(epath.Path(tmp_path / "two/runs/run-1/checkpoints/8") / STATE)
    leaves = jax.tree_util.tree_leaves_with_path(saved.tree["parameters"])
    names = {jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves}
    assert names == {f"blocks.{target}_{part}" for target in LORA.targets for part in "ab"}


def test_other_weights_than_the_adapters_are_for_are_refused(tmp_path: Path, weights: Path) -> None:
    run(job(tmp_path / "run", weights, steps=1))
    other = written(tmp_path / "other", seed=8)
    with pytest.raises(InvalidSpec, match=r"cannot continue .*initial_weights: expected weights with the digest"):
        run(job(tmp_path / "run", other, steps=2))
    with pytest.raises(InvalidSpec, match=r"training.lora: expected rank=4 alpha=8.* got rank=4 alpha=4"):
        run(job(tmp_path / "run", weights, steps=2, lora=LoraSpec(rank=4, alpha=4)))
    with pytest.raises(InvalidSpec, match=r"other must have the weights that the adapters were trained for, .*give"):
        export(epath.Path(tmp_path / "run/runs/run-1"), epath.Path(tmp_path / "out"), None, epath.Path(other))


def test_the_first_step_is_that_of_the_weights_and_the_export_has_the_adapters_in_them(
    tmp_path: Path, weights: Path, capsys: Capture
) -> None:
    adapted = trained(job(tmp_path / "adapters", weights), capsys)
    whole = trained(job(tmp_path / "whole", weights, steps=1, lora=None), capsys)
    assert losses(adapted)[1] == losses(whole)[1]
    out = tmp_path / "merged"
    export(epath.Path(tmp_path / "adapters" / "runs" / "run-1"), epath.Path(out), None)
    # The first step of the warm-up has a learning rate of 0.
    merged = evaluation(trained(job(tmp_path / "on", out, steps=1, lora=None), capsys))
    assert merged == pytest.approx(evaluation(adapted), rel=1e-5)
    assert abs(merged - evaluation(whole)) > 1e-3


def test_adapters_with_frozen_weights_take_less_memory_than_whole_weights(tmp_path: Path, weights: Path) -> None:
    held: list[int] = []
    for lora in (LORA, None):
        spec = changed(job(tmp_path, weights, lora=lora), training={"compute_dtype": "bfloat16"})
        held.append(bytes_per_device(program_of(spec).held_shapes))
    # Frozen weights take 2 bytes each where training needs 12, and adapters are a tenth of this small model.
    assert held[0] < 0.35 * held[1]

import shutil
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath

from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE, Capture, parsed, program_of, run, stopped, trained
from tests.workloads.weights.hugging_face_files import random_tensors, write_files
from workloads.progress import Evaluation, RunStarted
from workloads.spec import ExpertsSpec, ModelSpec, load_preset
from workloads.training.export import export
from workloads.training.failures import InvalidSpec
from workloads.training.fingerprint import compile_fingerprints
from workloads.training.initial_weights import InitialWeights
from workloads.training.parameter_folder import read_about, read_whole
from workloads.training.step import TrainState
from workloads.weights.conversion import import_weights

pytestmark = pytest.mark.costs(cpu_seconds=30)

JOB = small_job(Path("unused"))

type Begin = Callable[..., TrainState]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> epath.Path:
    """Return a folder with imported weights of the tiny model."""
    root = tmp_path_factory.mktemp("weights")
    files = write_files(root / "files", random_tensors(JOB.model))
    import_weights(files, epath.Path(root / "imported"), ("tiny", load_preset("tiny")), lambda *_: None)
    return epath.Path(root / "imported")


@pytest.fixture(scope="module")
def begin() -> Begin:
    """Return the first state of the small job on its mesh, with the weights of a folder."""
    program = program_of(JOB)
    take, initial = compile_fingerprints(program.state_shapes), program.compile_initial()

    def begun(folder: epath.Path, model: ModelSpec = JOB.model, read_once_from_replicas: int = 4) -> TrainState:
        return InitialWeights(folder, model, read_once_from_replicas).put_into(initial(), take, ALONE)

    return begun


@pytest.mark.parametrize("read_once_from_replicas", [2, 4])
def test_a_new_state_has_these_weights_split_over_the_mesh_and_is_otherwise_fresh(
    read_once_from_replicas: int, folder: epath.Path, begin: Begin
) -> None:
    state = begin(folder, read_once_from_replicas=read_once_from_replicas)
    whole = read_whole(folder, read_about(folder))
    jax.tree.map(np.testing.assert_array_equal, state.parameters, whole)
    assert not state.parameters["embedding"].is_fully_replicated
    assert int(state.step) == 0
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.optimizer))


def test_weights_of_another_model_are_refused_with_the_difference(folder: epath.Path, begin: Begin) -> None:
    experts = ExpertsSpec(count=4, per_token=2, balance_weight=0.0)
    other = JOB.model.model_copy(update={"kv_heads": 4, "head_dim": 8, "experts": experts})
    with pytest.raises(InvalidSpec) as caught:
        begin(folder, other)
    message = str(caught.value)
    assert "model.kv_heads: expected 4, got 2; model.head_dim: expected 8, got 16" in message
    assert "model.experts: expected {'count': 4}, got None; choose the preset" in message


def test_what_the_weights_do_not_fix_may_change(folder: epath.Path, begin: Begin) -> None:
    longer = JOB.model.model_copy(update={"rope_base": 1e6, "norm_epsilon": 1e-5})
    assert int(begin(folder, longer).step) == 0


def change(folder: epath.Path) -> None:
    one = read_about(folder).fingerprints["parameters.embedding"]
    (folder / "export.json").write_text((folder / "export.json").read_text().replace(one, "0" * 16))


def forget_a_fingerprint(folder: epath.Path) -> None:
    about = read_about(folder)
    del about.fingerprints["parameters.embedding"]
    (folder / "export.json").write_text(about.model_dump_json())


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (change, r"differs from what was written: parameters.embedding \(expected 0{{16}}, got {digest}"),
        (forget_a_fingerprint, r"parameters.embedding \(expected None, got {digest}"),
        (lambda folder: (folder / "export.json").unlink(), "must have export.json, but does not; make"),
        (lambda folder: (folder / "parameters").rename(folder / "elsewhere"), "cannot be read"),
    ],
    ids=["changed", "without a fingerprint", "without a description", "without parameters"],
)
def test_a_damaged_folder_is_refused(
    damage: Callable[[epath.Path], object], fault: str, folder: epath.Path, begin: Begin, tmp_path: Path
) -> None:
    copy = epath.Path(shutil.copytree(folder, tmp_path / "copy"))
    damage(copy)
    digest = read_about(folder).fingerprints["parameters.embedding"]
    with pytest.raises(InvalidSpec, match=fault.format(digest=digest)):
        begin(copy)


def test_a_new_run_begins_where_the_exported_one_ended_and_a_resumed_one_where_it_was(
    tmp_path: Path, capsys: Capture
) -> None:
    first = trained(small_job(tmp_path / "one"), capsys)
    export(epath.Path(tmp_path / "one" / "runs" / "run-1"), epath.Path(tmp_path / "exported"), None)
    whole = small_job(tmp_path / "two", evaluate_every_steps=1)
    second = stopped(whole.model_copy(update={"initial_weights": str(tmp_path / "exported")}), 1, capsys)
    # The first step of the warm-up has a learning rate of 0.
    assert [found.loss for found in parsed(Evaluation, second)] == [found.loss for found in parsed(Evaluation, first)]
    assert parsed(RunStarted, trained(whole, capsys)) == [RunStarted("run-1", "resumed", 1, 8)]
    with pytest.raises(InvalidSpec, match=r"initial_weights: expected .*exported, got nowhere"):
        run(whole.model_copy(update={"initial_weights": "nowhere"}))

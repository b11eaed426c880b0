import shutil
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest
from etils import epath

from tests.workloads.jobs import small_job
from tests.workloads.weights.hugging_face_files import random_tensors, write_files
from workloads.progress import Evaluation, RunStarted
from workloads.spec import ExpertsSpec, JobSpec, ModelSpec, load_preset
from workloads.training.export import export
from workloads.training.failures import InvalidSpec
from workloads.training.fingerprint import compile_fingerprints
from workloads.training.initial_weights import InitialWeights
from workloads.training.live_metrics import LiveMetrics
from workloads.training.loop import train
from workloads.training.mesh import build_mesh
from workloads.training.parameter_folder import read_about, read_whole
from workloads.training.runtime import Processes
from workloads.training.start import Start
from workloads.training.step import Program, TrainState
from workloads.weights.conversion import import_weights

pytestmark = pytest.mark.costs(cpu_seconds=30)
"""CPU time without a compilation cache."""

ALONE = Processes(0, 1, "host-0")
JOB = small_job(Path("unused"))

type Begin = Callable[..., TrainState]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> epath.Path:
    """Return a folder with imported weights of the tiny model."""
    root = tmp_path_factory.mktemp("weights")
    files = write_files(root / "files", random_tensors(JOB.model))
    import_weights(files, epath.Path(root / "imported"), "tiny", load_preset("tiny"), lambda *_: None)
    return epath.Path(root / "imported")


@pytest.fixture(scope="module")
def begin() -> Begin:
    """Return the first state of the small job on its mesh, with the weights of a folder."""
    program = Program(JOB, build_mesh(JOB.mesh, JOB.slices, jax.devices()))
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


def test_changed_weights_are_refused(folder: epath.Path, begin: Begin, tmp_path: Path) -> None:
    copy = epath.Path(shutil.copytree(folder, tmp_path / "copy"))
    one = read_about(folder).fingerprints["parameters.embedding"]
    (copy / "export.json").write_text((folder / "export.json").read_text().replace(one, "0" * 16))
    with pytest.raises(
        InvalidSpec, match=rf"differs from what was written: parameters.embedding \(expected 0{{16}}, got {one}"
    ):
        begin(copy)


def test_weights_without_a_fingerprint_are_refused(folder: epath.Path, begin: Begin, tmp_path: Path) -> None:
    copy = epath.Path(shutil.copytree(folder, tmp_path / "copy"))
    about = read_about(folder)
    del about.fingerprints["parameters.embedding"]
    (copy / "export.json").write_text(about.model_dump_json())
    with pytest.raises(InvalidSpec, match=r"parameters.embedding \(expected None, got"):
        begin(copy)


@pytest.mark.parametrize(
    ("remove", "fault"),
    [("export.json", "must have export.json, but does not; make"), ("parameters", "cannot be read")],
)
def test_half_a_folder_is_an_error(remove: str, fault: str, folder: epath.Path, begin: Begin, tmp_path: Path) -> None:
    copy = epath.Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / remove).rename(copy / "elsewhere")
    with pytest.raises(InvalidSpec, match=fault):
        begin(copy)


def trained(job: JobSpec, capsys: pytest.CaptureFixture[str]) -> list[str]:
    start = Start("run-1", 0, time.time(), None, job.slices.count, None)
    train(job, start, ALONE, LiveMetrics(start, leads=True))
    return capsys.readouterr().out.splitlines()


def test_a_new_run_begins_where_the_exported_one_ended_and_a_resumed_one_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = trained(small_job(tmp_path / "one", steps=4), capsys)
    export(epath.Path(tmp_path / "one" / "runs" / "run-1"), epath.Path(tmp_path / "exported"), None)
    job = small_job(tmp_path / "two", steps=1).model_copy(update={"initial_weights": str(tmp_path / "exported")})
    second = trained(job, capsys)
    # The first step of the warm-up has a learning rate of 0.
    assert evaluations(second) == evaluations(first)
    longer = small_job(tmp_path / "two", steps=2)
    started = [found for line in trained(longer, capsys) if (found := RunStarted.parse(line))]
    assert started == [RunStarted("run-1", "resumed", 1, 2)]
    with pytest.raises(InvalidSpec, match=r"initial_weights: expected .*exported, got nowhere"):
        trained(longer.model_copy(update={"initial_weights": "nowhere"}), capsys)


def evaluations(lines: list[str]) -> list[float]:
    return [found.loss for line in lines if (found := Evaluation.parse(line))]

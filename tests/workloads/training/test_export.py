import json
import os
import sys
from pathlib import Path

import jax
import numpy as np
import orbax.checkpoint as ocp
import pytest
from etils import epath

from tests.workloads.jobs import small_job
from tests.workloads.training.running import ALONE, program_of
from workloads.spec import ExitCode
from workloads.training.checkpoint import Checkpoints, Record
from workloads.training.export import export, main
from workloads.training.failures import NoCheckpoint
from workloads.training.fingerprint import compile_fingerprints
from workloads.training.runs import DataRecord, manifest
from workloads.training.step import Program, TrainState
from workloads.weights import __main__ as weights

JOB = small_job(Path("unused"))
DATA = DataRecord(data_digest="digest", data_order="order", datasets=[])


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(JOB)


@pytest.fixture(scope="module")
def state(program: Program) -> TrainState:
    return program.compile_initial()()


@pytest.fixture(scope="module")
def run(program: Program, state: TrainState, tmp_path_factory: pytest.TempPathFactory) -> epath.Path:
    """Return a run with checkpoints of steps 1 and 2."""
    folder = epath.Path(tmp_path_factory.mktemp("run-1"))
    take = compile_fingerprints(program.state_shapes)
    checkpoints = Checkpoints(folder / "checkpoints", JOB.training, ALONE)
    for step in (1, 2):
        described = manifest(JOB, DATA, "registry/image@sha256:abc", {}, {"attention": "reference"})
        checkpoints.save(step, state, Record(take(state)[0], described))
    checkpoints.close()
    return folder


@pytest.mark.parametrize(("asked", "step"), [(None, 2), (1, 1)])
def test_an_export_holds_the_parameters_of_a_checkpoint_and_what_it_came_from(
    run: epath.Path, state: TrainState, tmp_path: Path, asked: int | None, step: int
) -> None:
    out = epath.Path(tmp_path / "out")
    assert export(run, out, asked) == step
    whole = jax.tree.map(np.zeros_like, state.parameters)
    exported = ocp.StandardCheckpointer().restore(out / "parameters", whole)
    jax.tree.map(np.testing.assert_array_equal, exported, state.parameters)
    about = json.loads((out / "export.json").read_text())
    assert (about["step"], about["manifest"]["image"]) == (step, "registry/image@sha256:abc")
    assert all(name.startswith("parameters.") for name in about["fingerprints"])


def test_a_damaged_checkpoint_is_not_exported(run: epath.Path, tmp_path: Path) -> None:
    record = run / "checkpoints" / "2" / "record" / "metadata"
    whole = json.loads(record.read_text())
    damaged = whole["fingerprints"] | {"parameters.embedding": "0" * 16}
    record.write_text(json.dumps(whole | {"fingerprints": damaged}))
    with pytest.raises(NoCheckpoint, match=r"differs from what was saved: parameters.embedding \(expected 0{16}, got"):
        export(run, epath.Path(tmp_path / "out"), None)
    record.write_text(json.dumps(whole))
    assert list(tmp_path.iterdir()) == []


def test_the_commands_take_folders_relative_to_the_working_folder(
    run: epath.Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["export", os.path.relpath(run), "parameters"])
    main()
    assert weights.main(["export", "parameters", "hugging-face"]) == 0
    assert list((tmp_path / "hugging-face").glob("model-*.safetensors"))


def test_the_command_refuses_a_step_that_was_not_saved_and_lists_those_that_were(
    run: epath.Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["export", str(run), str(tmp_path / "out"), "--step", "7"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == ExitCode.INVALID_SPEC
    assert capsys.readouterr().err.endswith("(step 7), got [1, 2]\n")

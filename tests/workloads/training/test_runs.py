import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from etils import epath
from pydantic import ValidationError

from multislice_run.records import numbered
from multislice_run.records.ledger import add_unstored
from tests.workloads.jobs import changed, small_job
from tests.workloads.training.running import ALONE
from workloads.spec import JobSpec, StorageSpec
from workloads.training.failures import InvalidSpec
from workloads.training.runs import DataRecord, Run, manifest, open_run, recorded_kernel

OPTIONS = {"xla_option": 1}


def started(job: JobSpec, run_id: str, digest: str = "digest", order: str = "order") -> Run:
    data = DataRecord(data_digest=digest, data_order=order, datasets=[])
    described = manifest(job, data, "registry/image@sha256:abc", OPTIONS, {"attention": "reference"})
    run = open_run(job, run_id, described, ALONE)
    run.ledger.mkdir(parents=True, exist_ok=True)
    (run.ledger / f"{run.start}-0.jsonl").write_text("")
    return run


def new(job: JobSpec) -> JobSpec:
    return changed(job, storage={"existing_run": "new"})


def test_resume_goes_on_with_the_current_run_whoever_submits(tmp_path: Path) -> None:
    # There is no run yet that a damaged name could be of.
    (tmp_path / "current.json").write_text("{")
    job = small_job(tmp_path)
    first, second = started(job, "first"), started(job, "second")
    assert (first.id, second.id) == ("first", "first")
    assert (first.start, second.start) == (0, 1)
    assert first.folder == second.folder


DAMAGED = ["", '{"run": "fi', "[]", '{"run": 3}', '{"run": "../../elsewhere"}', '{"run": ".."}', '{"run": ""}', "{}"]


@pytest.mark.parametrize("written", DAMAGED)
def test_a_damaged_name_of_the_current_run_is_reported_and_the_newest_run_is_resumed(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    storage = tmp_path / "storage"
    job = small_job(storage)
    started(job, "older")
    started(new(job), "newer")
    os.utime(storage / "runs" / "older" / "ledger" / "0-0.jsonl", (1, 1))
    (storage / "current.json").write_text(written)
    assert recorded_kernel(job.storage, "attention", job.slices.generation) == "reference"
    run = started(job, "third")
    assert (run.id, run.start) == ("newer", 1)
    assert f"{storage / 'current.json'} cannot be used" in capsys.readouterr().out
    assert json.loads((storage / "current.json").read_text()) == numbered({"run": "newer"})
    assert [path.name for path in tmp_path.iterdir()] == ["storage"]


@pytest.mark.parametrize("written", ["", '{"spec": {', "[]", "{}", '{"spec": 3}', '{"spec": {"name": "x"}}'])
def test_a_damaged_manifest_is_reported_and_written_again(
    tmp_path: Path, written: str, capsys: pytest.CaptureFixture[str]
) -> None:
    job = small_job(tmp_path)
    first = started(job, "first")
    (first.folder / "manifest.json").write_text(written)
    assert recorded_kernel(job.storage, "attention", job.slices.generation) is None
    again = started(job, "second")
    assert (again.id, again.start) == ("first", 1)
    assert f"{first.folder / 'manifest.json'} cannot be used" in capsys.readouterr().out
    assert json.loads((first.folder / "manifest.json").read_text()) == again.manifest


def test_a_stray_file_among_the_ledgers_is_reported_and_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = started(small_job(tmp_path), "first")
    for name in ("x-0.jsonl", "notes.txt", "7.jsonl", "-1-0.jsonl"):
        (first.ledger / name).write_text("")
    assert started(small_job(tmp_path), "second").start == 1
    assert f"{first.ledger / 'x-0.jsonl'} is not a ledger" in capsys.readouterr().out
    (first.steps / "0-x.jsonl").parent.mkdir()
    (first.steps / "0-x.jsonl").write_text("")
    add_unstored(epath.Path(first.steps), 0, ['{"time": 1}'])
    assert (first.steps / "0-0.jsonl").read_text() == '{"time": 1}\n'


def test_new_begins_a_run_next_to_the_earlier_one_and_restarts_resume_it(tmp_path: Path) -> None:
    job = new(small_job(tmp_path))
    runs = [started(job, "first"), started(job, "second"), started(job, "second")]
    assert [(run.id, run.start) for run in runs] == [("first", 0), ("second", 0), ("second", 1)]
    assert json.loads((tmp_path / "current.json").read_text()) == numbered({"run": "second"})
    assert started(small_job(tmp_path), "third").id == "second"


def test_the_manifest_holds_specification_data_image_commit_versions_and_compiler_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--some_argument=1")
    job = small_job(tmp_path)
    run = started(job, "first")
    written = json.loads((run.folder / "manifest.json").read_text())
    assert written == run.manifest
    assert JobSpec.model_validate(written["spec"]) == job
    assert (written["data_digest"], written["image"]) == ("digest", "registry/image@sha256:abc")
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", written["commit"])
    assert (written["compiler_options"], written["libtpu_args"]) == (OPTIONS, "--some_argument=1")
    assert {"python", "jax", "flax", "orbax-checkpoint"} <= set(written["versions"])


BETA2 = {"optimizer": {"beta2": 0.5}}
SKIP_NORM = {"optimizer": {"skip_norm": 20.0}}
OTHER_SEED = {"training": {"seed": 7}}
ALLOWED = {"optimizer": {"learning_rate": 0.001}, "storage": {"allow_changes": ("optimizer.learning_rate",)}}
SIZES = {"training": {"global_batch": 32, "sequence_length": 32}}
SAME_ROWS = r"the same seed gives another order of rows with grain .*abc"


@pytest.mark.parametrize(
    ("sections", "data", "message"),
    [
        (OTHER_SEED, (), "training.seed: expected 0, got 7"),
        (OTHER_SEED | ALLOWED, (), "training.seed: expected 0, got 7; restore them or"),
        ({"training": {"ignored_token": 0}}, (), "training.ignored_token: expected None, got 0"),
        ({"training": {"document_end": 10}}, (), "training.document_end: expected None, got 10"),
        (SIZES, (), "global_batch: expected 16, got 32; .*length: expected 64, got 32"),
        (BETA2, (), r"optimizer.beta2: expected 0.95, got 0.5; .*allow_changes: \[optimizer.beta2\]"),
        (SKIP_NORM, (), r"expected None, got 20.0; .*allow_changes: \[optimizer.skip_norm\]"),
        ({"optimizer": {"kind": "muon"}}, (), "optimizer.kind: expected adamw, got muon; restore them or begin"),
        ({}, ("another",), "data.digest: expected digest, got another"),
        ({}, ("digest", "another"), rf"data.order: expected order, got another \({SAME_ROWS}"),
        ({}, ("other rows", "another"), "data.digest: expected digest, got other rows; restore them"),
    ],
)
def test_a_run_cannot_go_on_with_other_settings_or_data(
    tmp_path: Path, sections: dict[str, Any], data: tuple[str, ...], message: str
) -> None:
    run = started(small_job(tmp_path), "first")
    with pytest.raises(InvalidSpec, match=message):
        started(changed(small_job(tmp_path), **sections), "second", *data)
    assert started(small_job(tmp_path), "third").id == run.id


def recorded_with(run: Run, changes: dict[str, Any], *lost: str, **training: Any) -> None:
    """Add settings of an older version to the manifest of a run, and remove facts that it did not record."""
    path = run.folder / "manifest.json"
    found = {name: fact for name, fact in json.loads(path.read_text()).items() if name not in lost}
    found["spec"] = found["spec"] | changes | {"training": found["spec"]["training"] | training}
    path.write_text(json.dumps(found))


def test_a_run_goes_on_whose_slices_once_restarted_without_each_other(tmp_path: Path) -> None:
    recorded_with(started(small_job(tmp_path), "first"), {"slice_failure": "continue"})
    assert started(small_job(tmp_path), "second").id == "first"


@pytest.mark.parametrize(("name", "value"), [("sync_every", 4), ("lost_rows", "next-step")])
def test_a_run_cannot_go_on_whose_steps_no_longer_exist(tmp_path: Path, name: str, value: object) -> None:
    recorded_with(started(small_job(tmp_path), "first"), {"slice_failure": "continue"}, **{name: value})
    with pytest.raises(InvalidSpec, match=rf"run first cannot .* training.{name}, which no longer exists; begin a new"):
        started(small_job(tmp_path), "second")


def test_no_job_can_allow_a_change_of_its_kind_of_optimizer() -> None:
    with pytest.raises(ValidationError, match="one of optimizer.learning_rate"):
        StorageSpec(path="unused", existing_run="resume", allow_changes=("optimizer.kind",))


@pytest.mark.parametrize(("name", "value"), [("skip_norm", 20.0), ("learning_rate", 0.001)])
def test_a_run_goes_on_with_another_optimizer_only_if_the_job_allows_that_very_change(
    tmp_path: Path, name: str, value: float
) -> None:
    job = small_job(tmp_path)
    started(job, "first")
    for allowed in ((), ("optimizer.clip_norm",)):
        with pytest.raises(InvalidSpec, match=rf"optimizer.{name}: expected (None|0.003), got {value}"):
            started(changed(job, optimizer={name: value}, storage={"allow_changes": allowed}), "second")
    allowing = {"allow_changes": (f"optimizer.{name}",)}
    assert started(changed(job, optimizer={name: value}, storage=allowing), "second").id == "first"


def with_rate(job: JobSpec, learning_rate: float, *allowed: str) -> JobSpec:
    return changed(job, optimizer={"learning_rate": learning_rate}, storage={"allow_changes": allowed})


def test_an_allowed_change_holds_from_then_on_and_so_needs_leave_to_be_taken_back(tmp_path: Path) -> None:
    job = small_job(tmp_path)
    first = started(job, "first")
    started(with_rate(job, 0.001, "optimizer.learning_rate"), "second")
    assert started(with_rate(job, 0.001), "third").id == "first"
    with pytest.raises(InvalidSpec, match=r"optimizer.learning_rate: expected 0.001, got 0.003"):
        started(job, "fourth")
    written = json.loads((first.folder / "manifest.json").read_text())
    assert written["spec"]["optimizer"]["learning_rate"] == 0.001
    written["spec"]["optimizer"]["learning_rate"] = 0.003
    assert written == first.manifest


def test_a_run_that_recorded_no_order_keeps_the_order_of_its_next_start(tmp_path: Path) -> None:
    recorded_with(started(small_job(tmp_path), "first"), {}, "data_order", "datasets")
    assert started(small_job(tmp_path), "second", order="another").id == "first"
    with pytest.raises(InvalidSpec, match="data.order: expected another, got order"):
        started(small_job(tmp_path), "third")


def test_a_run_may_be_made_longer_saved_more_often_and_moved_to_other_slices(tmp_path: Path) -> None:
    started(small_job(tmp_path, 2, 4, steps=8), "first")
    other = small_job(tmp_path, 1, 8, steps=16, save_every_minutes=1, keep_checkpoints=5)
    assert started(other, "second").id == "first"


def test_a_run_from_before_the_kernel_was_recorded_keeps_the_one_that_its_specification_named(tmp_path: Path) -> None:
    recorded_with(started(small_job(tmp_path, attention="splash"), "first"), {}, "attention")
    storage = small_job(tmp_path).storage
    assert recorded_kernel(storage, "attention", "cpu") == "splash"
    assert recorded_kernel(storage, "attention", "v6e") is None
    assert recorded_kernel(new(small_job(tmp_path)).storage, "attention", "cpu") is None
    started(small_job(tmp_path), "second")
    assert recorded_kernel(storage, "attention", "cpu") == "reference"

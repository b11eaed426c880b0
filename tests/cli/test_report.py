"""Which folder `multislice report` looks at, and how it ends."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from cli.answer import Halt
from cli.report import folder, is_folder, report
from infra.stack.names import jobs_folder
from sandbox.site import create
from tests.cli.shown import read_output
from tests.workloads.report.runs import crashed_and_resumed
from workloads.report.command import Asked, Report


def test_a_folder_is_itself_and_a_name_is_a_job_of_the_stack(tmp_path: Path) -> None:
    assert is_folder("runs/here", "dev")
    assert is_folder("gs://bucket/job", None)
    assert is_folder(str(tmp_path), None)
    assert not is_folder("tiny", None)
    assert folder(None, "dev", None) == "gs://my-project-multislice-dev-checkpoints/tiny"
    site = create(tmp_path / "sandbox")
    assert folder(None, "local", site.root) == str(site.buckets / "sandbox-local-checkpoints" / "tiny")
    assert folder("other", "local", site.root) == str(site.buckets / "sandbox-local-checkpoints" / "other")


def test_a_submitted_job_is_found_by_its_name_unless_several_teams_have_one(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    bucket = site.buckets / "my-project-multislice-prod-checkpoints"
    mine, theirs = (bucket / jobs_folder(team) / "sweep" for team in ("pretraining", "finetuning"))
    mine.mkdir(parents=True)
    assert folder("sweep", "prod", site.root) == str(mine)
    theirs.mkdir(parents=True)
    with pytest.raises(Halt, match=f"several teams have a sweep; write one of {mine}, {theirs}"):
        folder("sweep", "prod", site.root)


@pytest.mark.parametrize(
    ("target", "stack", "message"),
    [
        (None, "nowhere", r"--stack must name a file .*, got 'nowhere'; choose one of: "),
        (None, "local", r"expected a sandbox in the folder .*; `multislice up -s local --sandbox .*` creates one"),
    ],
)
def test_what_says_too_little_is_refused_with_what_is_missing(
    target: str | None, stack: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(Halt, match=message):
        folder(target, stack, tmp_path)


def test_a_job_of_the_sandbox_is_reported_by_its_name(tmp_path: Path) -> None:
    site = create(tmp_path / "sandbox")
    place = Path(folder("mine", "local", site.root))
    with pytest.raises(Halt, match="mine: expected a storage path with runs/ and current.json, .* found no run"):
        report(Asked(str(place), None, as_json=True), Console())
    crashed_and_resumed(place, 3600.0, 7200.0)
    console = Console(file=io.StringIO(), highlight=False)
    assert report(Asked(str(place), None, as_json=True), console) == 0
    assert Report.model_validate_json(read_output(console)).goodput.usd == 54.0

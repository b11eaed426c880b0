"""The commands of docs/how-to/data.md do what it says."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from cli.train import app
from infra.settings.read import parse
from tests.documents.pages import DOCS, ROOT, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.spec import token_folders

TEXT = (DOCS / "how-to" / "data.md").read_text()
QUICKER = ["--slices", "1", "--hosts", "1", "--chips", "2", "--steps", "2"]


@pytest.mark.complete
def test_its_commands_make_a_folder_that_trains(tmp_path: Path) -> None:
    (written,) = blocks(TEXT, "sh")
    commands = written.replace(".sandbox/tokens", str(tmp_path / "tokens"))
    prepare, check, make = commands.splitlines()
    for command in (prepare, check):
        subprocess.run(command, shell=True, cwd=ROOT, check=True)
    arguments = shlex.split(make.removeprefix("make train ARGS=").strip('"'))
    trained = CliRunner().invoke(app, [*arguments, *QUICKER, "--storage", str(tmp_path / "storage")])
    assert trained.exit_code == 0
    assert "step 2/2 loss" in trained.output


def test_its_stack_files_are_accepted() -> None:
    folder, mixture = (yaml.safe_load(block)["job"]["data"] for block in blocks(TEXT, "yaml"))
    for data, paths in (
        (folder, {"data": "gs://BUCKET/tokens"}),
        (mixture, {"data.datasets.code": "gs://BUCKET/code", "data.datasets.web": "gs://BUCKET/web"}),
    ):
        values = stack_values("dev")
        values["job"]["data"] = data
        spec = only_training(parse(values)).data
        assert spec
        assert {setting: folder.path for setting, folder in token_folders(spec).items()} == paths

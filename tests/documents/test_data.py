"""The commands of docs/data.md do what it says."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from cli.train import main
from infra.settings import parse
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.spec import TokenFileSpec

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "data.md").read_text()
QUICKER = ["--slices", "1", "--hosts", "1", "--chips", "2", "--steps", "2"]


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


@pytest.mark.complete
def test_its_commands_make_a_folder_that_trains(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = block("sh").replace(".sandbox/tokens", str(tmp_path / "tokens"))
    prepare, check, make = commands.splitlines()
    for command in (prepare, check):
        subprocess.run(command, shell=True, cwd=ROOT, check=True)
    arguments = shlex.split(make.removeprefix("make train ARGS=").strip('"'))
    assert main([*arguments, *QUICKER, "--storage", str(tmp_path / "storage")]) == 0
    assert "step 2/2 loss" in capsys.readouterr().out


def test_its_stack_file_is_accepted() -> None:
    values = stack_values("dev")
    values["job"] |= yaml.safe_load(block("yaml"))["job"]
    data = only_training(parse(values)).data
    assert isinstance(data, TokenFileSpec)
    assert data.path == "gs://BUCKET/tokens"

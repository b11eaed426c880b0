"""The command of docs/fine-tuning.md and its stack file do what it says."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from infra.settings.read import parse
from infra.submission import job_spec
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.data.token_folder import TokenFolder

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "fine-tuning.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"```{language}\n(.*?)```", TEXT, re.DOTALL)
    return found


def test_its_stack_file_is_accepted() -> None:
    values = stack_values("dev")
    values["job"] |= yaml.safe_load(block("yaml"))["job"]
    spec = job_spec(parse(values), only_training(parse(values)))
    assert spec.training.lora
    assert spec.training.lora.rank == 16


@pytest.mark.costs(cpu_seconds=10)
def test_its_commands_make_a_folder_of_which_answers_are_learned(tmp_path: Path) -> None:
    subprocess.run(block("sh").replace(".sandbox", str(tmp_path)), shell=True, cwd=ROOT, check=True)
    row = TokenFolder.open(str(tmp_path / "chat")).rows(128)[[0]][0]
    assert bytes(int(number) >> 1 for number in row).startswith(b"<user>1 + 1?</user><assistant>2</assistant>\n\0")
    assert bytes(int(number) >> 1 for number in row if number & 1 == 0) == b"2</assistant>\n"

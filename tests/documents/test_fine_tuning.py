"""The command of docs/how-to/fine-tuning.md and its stack file do what it says."""

import subprocess
from pathlib import Path

import pytest
import yaml

from infra.settings.read import parse
from infra.submission import job_spec
from tests.documents.pages import DOCS, ROOT, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.data.token_folder import TokenFolder

TEXT = (DOCS / "how-to" / "fine-tuning.md").read_text()


def test_its_stack_file_is_accepted() -> None:
    values = stack_values("dev")
    (shown,) = blocks(TEXT, "yaml")
    values["job"] |= yaml.safe_load(shown)["job"]
    spec = job_spec(parse(values), only_training(parse(values)))
    assert spec.training.lora
    assert spec.training.lora.rank == 16


@pytest.mark.costs(cpu_seconds=10)
def test_its_commands_make_a_folder_of_which_answers_are_learned(tmp_path: Path) -> None:
    (command,) = blocks(TEXT, "sh")
    subprocess.run(command.replace(".sandbox", str(tmp_path)), shell=True, cwd=ROOT, check=True)
    row = TokenFolder.open(str(tmp_path / "chat")).rows(128)[[0]][0]
    assert bytes(int(number) >> 1 for number in row).startswith(b"<user>1 + 1?</user><assistant>2</assistant>\n\0")
    assert bytes(int(number) >> 1 for number in row if number & 1 == 0) == b"2</assistant>\n"

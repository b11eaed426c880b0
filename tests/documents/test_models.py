"""The commands of docs/how-to/models.md do what it says, and its numbers are those of the presets."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from safetensors.numpy import load_file
from typer.testing import CliRunner

from cli.train import app
from infra.settings.read import parse
from infra.submission import job_spec
from tests.documents.pages import DOCS, ROOT, blocks
from tests.infra.one_job import only_training
from tests.infra.recording import stack_values
from workloads.spec import load_preset, preset_names
from workloads.spec.parameters import total_parameters
from workloads.training.flops import flops_per_token

TEXT = (DOCS / "how-to" / "models.md").read_text()
SMALLER = ["--slices", "1", "--hosts", "1", "--chips", "2"]
UNITS = {"thousand": 1e3, "million": 1e6, "billion": 1e9}


def block(language: str) -> str:
    (found,) = blocks(TEXT, language)
    return found


def train(command: str, storage: Path, more: list[str]) -> str:
    """Run the command and return its output."""
    arguments = shlex.split(command.removeprefix("make train ARGS=").strip('"'))
    trained = CliRunner().invoke(app, [*arguments, *more, "--storage", str(storage)])
    assert trained.exit_code == 0
    return trained.output


@pytest.mark.complete
def test_its_commands_take_weights_out_and_in_again(tmp_path: Path) -> None:
    first, *commands, again = block("sh").replace(".sandbox", str(tmp_path)).splitlines()
    train(first, tmp_path / "train", [*SMALLER, "--steps", "2"])
    for command in commands:
        subprocess.run(command, shell=True, cwd=ROOT, check=True)
    (file,) = (tmp_path / "hugging-face").glob("model-*.safetensors")
    assert "model.layers.1.mlp.down_proj.weight" in load_file(file)
    assert "step 2/2 loss" in train(again, tmp_path / "train", [*SMALLER, "--steps", "2"])
    assert len(list((tmp_path / "train" / "runs").iterdir())) == 2
    (ledger,) = [path for path in (tmp_path / "train").rglob("*.jsonl") if "initial_weights" in path.read_text()]
    assert str(tmp_path / "weights") in ledger.read_text()


@pytest.mark.complete
def test_its_mesh_trains(tmp_path: Path) -> None:
    more = ["--hosts", "1", "--chips", "8", "--steps", "2"]
    assert "step 2/2 loss" in train(block("console").strip(), tmp_path / "train", more)


def test_its_stack_file_is_accepted() -> None:
    values = stack_values("dev")
    values["job"] |= yaml.safe_load(block("yaml"))["job"]
    assert only_training(parse(values)).initial_weights == "gs://BUCKET/weights"


def test_its_decoder_is_accepted() -> None:
    values = stack_values("dev")
    values["job"] |= yaml.safe_load(block("yml"))["job"]
    spec = job_spec(parse(values), only_training(parse(values)))
    assert spec.model.window("local") == 512


def test_its_table_has_every_preset_and_its_numbers() -> None:
    rows = re.findall(r"\| `([\w.-]+)` \| ([\d.]+) (\w+)[^|]* \| ([\d.]+) (\w+) \|", TEXT)
    assert {name for name, *_ in rows} == set(preset_names())
    for name, weights, unit, flops, flops_unit in rows:
        preset = load_preset(name)
        counted = flops_per_token(preset.model, preset.training.sequence_length)
        assert float(weights) * UNITS[unit] == pytest.approx(total_parameters(preset.model), rel=5e-3)
        assert float(flops) * UNITS[flops_unit] == pytest.approx(counted, rel=2e-2)

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.answer import UNREAD
from cli.main import app
from sandbox.daemon import CHECKOUT


@pytest.mark.parametrize(
    "words",
    [
        ["review", "-s", "nowhere", "-o", "json"],
        ["review", "-ojson", "-s", "nowhere"],
        ["status", "-s", "nowhere", "--output=json", "--sandbox"],
        ["list", "--output", "json", "--engine", "pulumi", "--sandbox"],
        ["list", "--no", "-o", "json"],
        ["-o", "json"],
    ],
)
def test_with_an_answer_in_json_errors_are_json_as_well(words: list[str]) -> None:
    found = CliRunner().invoke(app, words)
    assert (found.exit_code, found.stdout) == (1, "")
    assert list(json.loads(found.stderr)) == ["error"]


def test_markdown_is_a_format_of_tables_only() -> None:
    assert "'markdown' is not one of" in CliRunner().invoke(app, ["list", "-s", "dev", "-o", "markdown"]).output


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the example stacks, and a Pulumi that has selected none of them."""
    shutil.copytree(CHECKOUT / "stacks", tmp_path / "stacks")
    shutil.copyfile(CHECKOUT / "Pulumi.yaml", tmp_path / "Pulumi.yaml")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    return tmp_path


@pytest.mark.usefixtures("project")
def test_the_stack_is_that_of_the_option_else_of_the_variable_else_the_selected_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def reviewed(*words: str) -> str:
        return json.loads(CliRunner().invoke(app, ["review", "-o", "json", *words]).stdout)["stack"]

    monkeypatch.setenv("PULUMI_STACK", "organization/tpu-multislice/staging")
    assert reviewed() == "staging"
    monkeypatch.setenv("MULTISLICE_STACK", "prod")
    assert reviewed() == "prod"
    assert reviewed("-s", "dev") == "dev"


@pytest.mark.usefixtures("project")
def test_without_a_stack_the_choices_are_named() -> None:
    found = CliRunner().invoke(app, ["status"])
    assert found.exit_code == 1
    assert "choose one of: dev, local, prod, staging" in found.stderr


@pytest.mark.parametrize("words", [["-s", "local"], ["-s", "dev", "--sandbox"], ["--sandbox", "-s", "dev"]])
def test_a_stack_whose_project_is_the_sandbox_is_there_and_others_only_on_request(
    words: list[str], project: Path
) -> None:
    found = CliRunner().invoke(app, ["status", *words])
    assert (found.exit_code, f"expected a sandbox in the folder {project / '.sandbox'}" in found.stderr) == (1, True)


@pytest.mark.parametrize(
    "command",
    [["review", "x"], ["preflight", "-s", "dev", "--no"], ["plan", "--tokens", "many"], ["x"], ["--no"], []],
)
def test_a_wrong_command_line_does_not_end_like_the_answer_no(command: list[str]) -> None:
    assert CliRunner().invoke(app, command).exit_code == 1


@pytest.mark.parametrize("command", [["-h"], ["--help"], ["--version"], ["review", "-h"]])
def test_who_asks_for_help_or_the_version_is_answered(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout


def test_the_version_is_that_of_the_project() -> None:
    answer = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]["version"]
    assert CliRunner().invoke(app, ["--version"]).stdout == f"multislice {answer}\n"


@pytest.mark.parametrize("command", ["status", "list", "logs", "explain", "cancel", "drift", "report"])
def test_the_folder_of_a_sandbox_asks_that_sandbox(command: str, tmp_path: Path) -> None:
    found = CliRunner().invoke(app, [command, "-s", "local", "--sandbox", str(tmp_path)])
    assert (found.exit_code, "expected a sandbox in the folder" in found.stderr) == (1, True)


@pytest.mark.parametrize("command", [["status", "-s", "local"], ["drift", "-s", "local"], ["preview", "-s", "dev"]])
def test_the_folder_of_a_sandbox_does_not_go_with_another_engine(command: list[str]) -> None:
    found = CliRunner().invoke(app, [*command, "--engine", "pulumi", "--sandbox", "here"])
    assert (found.exit_code, "--sandbox needs --engine sandbox" in found.stderr) == (1, True)


@pytest.mark.parametrize(
    "command", [["logs", "-s", "dev", "--all", "--host", "slice-0-0"], ["logs", "-s", "dev", "--follow", "--previous"]]
)
def test_options_that_exclude_each_other_are_refused(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, "got both" in found.output) == (1, True)


def test_help_without_a_reader_ends_as_every_other_output() -> None:
    ours, pipe = os.pipe()
    os.close(ours)
    command = [sys.executable, "-m", "cli.main", "--help"]
    ended = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, check=False)
    os.close(pipe)
    assert (ended.returncode, ended.stderr) == (UNREAD, b"")

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.multislice import app
from sandbox.daemon import CHECKOUT


@pytest.mark.parametrize("command", [["review", "-s", "dev"], ["preflight", "-s", "dev"], ["preview", "-s", "dev"]])
def test_an_answer_has_one_form(command: list[str]) -> None:
    found = CliRunner().invoke(app, [*command, "--json", "--markdown"])
    assert (found.exit_code, "got both" in found.output) == (1, True)


@pytest.mark.parametrize(
    "command",
    [["review"], ["preflight", "-s", "dev", "--no"], ["plan", "--tokens", "many"], ["x"], ["--no"], [], ["env"]],
)
def test_a_wrong_command_line_does_not_end_like_the_answer_no(command: list[str]) -> None:
    assert CliRunner().invoke(app, command).exit_code == 1


@pytest.mark.parametrize("command", [["-h"], ["--help"], ["--version"], ["review", "-h"], ["env", "-h"]])
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


@pytest.mark.parametrize("command", [["status", "-s", "local"], ["drift", "-s", "local"], ["env", "list"]])
def test_the_folder_of_a_sandbox_does_not_go_with_another_engine(command: list[str]) -> None:
    found = CliRunner().invoke(app, [*command, "--engine", "pulumi", "--sandbox", "here"])
    assert (found.exit_code, "--sandbox needs --engine sandbox" in found.stderr) == (1, True)


@pytest.mark.parametrize("arguments", [[], ["pr-1", "--expired"]])
def test_environments_are_destroyed_by_name_or_by_their_age(arguments: list[str]) -> None:
    found = CliRunner().invoke(app, ["env", "destroy", *arguments])
    assert (found.exit_code, "got both or neither" in found.output) == (1, True)


def test_commands_that_look_at_a_stack_do_without_pulumi_and_jax() -> None:
    """Google's clients, which read gs://, cannot be imported with Pulumi, and these commands should be fast."""
    commands = "cli.status, cli.logs, cli.explain.explain, cli.dashboard, sandbox.stacks"
    program = f"import sys, {commands}, cli.deployed; print({{'pulumi', 'jax', 'kubernetes'}} & sys.modules.keys())"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout == "set()\n"


@pytest.mark.parametrize(
    "command", [["logs", "-s", "dev", "--all", "--host", "slice-0-0"], ["logs", "-s", "dev", "--follow", "--previous"]]
)
def test_options_that_exclude_each_other_are_refused(command: list[str]) -> None:
    found = CliRunner().invoke(app, command)
    assert (found.exit_code, "got both" in found.output) == (1, True)

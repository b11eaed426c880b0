"""The stack that Pulumi has selected, as Pulumi itself writes it."""

import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cli.main import app
from cli.stack_file import selected_stack
from infra.stack.project import CHECKOUT
from sandbox import programs


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text((CHECKOUT / "Pulumi.yaml").read_text())
    return tmp_path


@pytest.fixture
def environment(project: Path) -> dict[str, str]:
    return {"PULUMI_HOME": str(project / "home")}


@pytest.mark.costs(cpu_seconds=10)
def test_the_stack_is_the_one_that_pulumi_has_selected_in_the_current_backend(
    project: Path, environment: dict[str, str]
) -> None:
    def pulumi(*words: str, **variables: str) -> None:
        passphrase = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_SKIP_UPDATE_CHECK": "true"}
        command = [programs.found().path("pulumi"), *words, "--non-interactive"]
        subprocess.run(command, cwd=project, env=os.environ | environment | passphrase | variables, check=True)

    for backend in ("first", "second"):
        (project / backend).mkdir()
        pulumi("stack", "init", f"of-{backend}", PULUMI_BACKEND_URL=f"file://{project / backend}")
    pulumi("login", f"file://{project / 'first'}")
    assert selected_stack(project, environment) == "of-first"
    second = environment | {"PULUMI_BACKEND_URL": f"file://{project / 'second'}"}
    assert selected_stack(project, second) == "of-second"
    pulumi("stack", "unselect")
    assert selected_stack(project, environment) is None


def test_the_variable_of_pulumi_goes_before_the_selected_stack(project: Path) -> None:
    assert selected_stack(project, {"PULUMI_STACK": "acme/tpu-multislice/prod"}) == "prod"


def test_a_selection_of_older_versions_holds_for_all_backends(project: Path, environment: dict[str, str]) -> None:
    assert selected_stack(project, environment) is None
    key = hashlib.sha1(str(project / "Pulumi.yaml").encode()).hexdigest()
    file = project / "home" / "workspaces" / f"tpu-multislice-{key}-workspace.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"stack": "dev"}))
    assert selected_stack(project, environment) == "dev"
    file.write_text("{")
    assert selected_stack(project, environment) is None


def test_without_a_selected_stack_the_choices_are_named(
    project: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "stacks" / "Pulumi.dev.yaml").touch()
    monkeypatch.chdir(project)
    monkeypatch.setenv("PULUMI_HOME", environment["PULUMI_HOME"])
    for command in ("list", "submit", "doctor", "explain", "review"):
        answer = CliRunner().invoke(app, [command])
        assert answer.exit_code == 1
        assert re.search(r"MULTISLICE_STACK.*choose one of: dev$", answer.stderr)
        # A review has no options for a cluster.
        assert ("--namespace" in answer.stderr) == (command != "review")
    assert "`-s dev`" in CliRunner().invoke(app, ["review", "dev"]).stderr

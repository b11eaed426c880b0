"""`multislice up` and `down` of a stack in Google Cloud, with a program `pulumi` that writes down how it is called."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from cli.deploy import down, up
from cli.main import app
from cli.stack_file import files_of_project
from infra.cluster.stacks import NO_RENEWAL, Renewal, StacksError
from tests.cli.shown import console, read_output

KEY = "projects/acme-tpus/locations/us-east5/keyRings/pulumi/cryptoKeys/stacks"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the stack dev. Pulumi has a stack `other`, in a bucket."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "pulumi"
    program.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path / "calls"}\necho \'[{{"name": "other"}}]\'\n')
    program.chmod(0o755)
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("PULUMI_BACKEND_URL", "gs://acme-state")
    values = ("--project", "acme-tpus", "--generation", "v6e", "--topology", "4x4", "--zone", "us-east5-b")
    assert CliRunner().invoke(app, ["init", *values]).exit_code == 0
    return folder


def change(project: Path, **values: object) -> None:
    file = project / "stacks" / "Pulumi.dev.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | values))


def section(folder: Path, name: str, **values: object) -> None:
    file = folder / "stacks" / "Pulumi.dev.yaml"
    content = yaml.safe_load(file.read_text())
    content["config"].setdefault(f"tpu-multislice:{name}", {}).update(values)
    file.write_text(yaml.safe_dump(content))


def run(*words: str, exit_status: int = 0) -> Result:
    found = CliRunner().invoke(app, words)
    assert found.exit_code == exit_status, found.output
    return found


def calls(project: Path) -> list[str]:
    file = project.parent / "calls"
    return file.read_text().splitlines() if file.exists() else []


def test_up_reviews_the_stack_and_deploys_it_under_the_rules(project: Path) -> None:
    change(project, secretsprovider=f"gcpkms://{KEY}")
    printed = console()
    assert up("dev", files_of_project(), printed, NO_RENEWAL, yes=True) == 0
    shown = read_output(printed)
    assert shown.index("$38.88 an hour") < shown.index("multislice status -s dev")
    rules = f"--policy-pack {project / 'policy'} --policy-pack-config {project / 'policy' / 'stacks' / 'dev.json'}"
    assert calls(project) == [
        "stack ls --json --non-interactive",
        f"stack init dev --no-select --secrets-provider=gcpkms://{KEY} --non-interactive",
        f"up --stack dev {rules} --yes --non-interactive",
    ]


def test_a_stack_without_settings_of_the_rules_is_deployed_under_all_of_them(project: Path) -> None:
    (project / "policy" / "stacks" / "dev.json").unlink()
    up("dev", files_of_project(), console(), NO_RENEWAL, yes=True)
    assert calls(project)[-1] == f"up --stack dev --policy-pack {project / 'policy'} --yes --non-interactive"


def test_up_refreshes_and_replaces_what_it_is_told_to(project: Path) -> None:
    renewal = Renewal(refresh=True, replace=("**::job-a", "**::job-b"))
    up("dev", files_of_project(), console(), renewal, yes=True)
    assert calls(project)[-1].startswith("up --stack dev --refresh --replace **::job-a --replace **::job-b --policy")


def test_pulumi_asks_for_confirmation_on_a_terminal(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    up("dev", files_of_project(), console(), NO_RENEWAL, yes=False)
    down("dev", files_of_project(), console(), yes=False)
    assert [call for call in calls(project) if "--yes" in call] == []
    assert calls(project)[-1] == "destroy --stack dev"


@pytest.mark.parametrize("command", ["up", "down"])
def test_without_a_terminal_nothing_happens_without_consent(command: str, project: Path) -> None:
    assert "Add --yes" in run(command, "-s", "dev", exit_status=1).stderr
    assert calls(project) == []


def test_a_stack_that_the_review_refuses_is_not_deployed(project: Path) -> None:
    section(project, "cloud", project="my-project")
    *_, last = run("up", "-s", "dev", exit_status=2).stdout.splitlines()
    assert last.startswith("nothing was deployed: `up` refuses this stack: correct cloud.project: expected")
    assert calls(project) == []


def test_down_lists_what_remains_with_the_commands_that_remove_it(project: Path) -> None:
    change(project, secretsprovider=f"gcpkms://{KEY}")
    printed = console()
    assert down("dev", files_of_project(), printed, yes=True) == 0
    assert calls(project) == ["destroy --stack dev --yes --non-interactive"]
    commands = [line.partition(": ")[2] for line in read_output(printed).splitlines()[1:]]
    assert commands == [
        "gcloud storage rm --recursive gs://acme-tpus-multislice-dev-checkpoints",
        "gcloud compute disks list --project=acme-tpus --filter=name~^pvc-",
        "pulumi stack rm dev",
        f"gcloud kms keys versions destroy 1 --key={KEY}",
        "gcloud storage rm --recursive gs://acme-state",
    ]


def test_what_prevents_a_destroy_is_reported_before_it_begins(project: Path) -> None:
    section(project, "cluster", deletion_protection=True)
    assert "multislice up -s dev" in run("down", "-s", "dev", "--yes", exit_status=1).stderr
    assert calls(project) == []


def test_options_of_the_sandbox_are_refused_for_a_stack_in_google_cloud(project: Path) -> None:
    assert "are for the sandbox" in run("down", "-s", "dev", "--yes", "--stop-jobs", exit_status=1).stderr
    assert calls(project) == []


@pytest.mark.parametrize("command", ["up", "down"])
def test_a_stack_that_does_not_exist_is_reported_with_those_that_do(command: str, project: Path) -> None:
    told = run(command, "-s", "nope", exit_status=1).stderr
    assert "got 'nope'; choose one of: dev" in told
    assert calls(project) == []


@pytest.mark.parametrize("command", [partial(up, renewal=NO_RENEWAL), down])
def test_a_missing_pulumi_is_an_error_with_advice(
    command: Callable[..., int], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(StacksError, match="expected the program pulumi on the PATH, found none; install Pulumi"):
        command("dev", files_of_project(), console(), yes=True)

"""`python -m cli.ci set-up`, against a GitHub on loopback and a `gcloud` that writes down what it is asked."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from cli.ci.set_up import Wish, set_up
from cli.halt import Halt
from tests.cli.ci.github_server import GitHub, github
from tests.infra.recording import ROOT

WISH = Wish(("dev", "prod"), "dev", ("octocat", "owner/platform"), ("dev",))
STAND_IN = """#!/bin/sh
echo "$*" >> "$ASKED"
case "$*" in
  "projects describe"*) echo 42 ;;
  *" $REFUSED "*) echo "ERROR: $REFUSED is refused" >&2; exit 1 ;;
  *" create"*) echo "ERROR: the resource already exists" >&2; exit 1 ;;
esac
"""
BOTH = {"main", "refs/pull/*/merge"}


@pytest.fixture
def hub() -> Iterator[GitHub]:
    with github() as served:
        yield served


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where `gcloud` writes what it is asked."""
    program = tmp_path / "bin" / "gcloud"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (tmp_path / "asked").touch()
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("ASKED", str(tmp_path / "asked"))
    monkeypatch.setenv("REFUSED", "nothing")
    return tmp_path / "asked"


@pytest.fixture
def stacks(tmp_path: Path) -> Path:
    for stack in WISH.stacks:
        write(tmp_path, stack, f"project-{stack}", f"gcpkms://projects/project-{stack}/locations/l/keyRings/r/k?x=y")
    return tmp_path


def write(folder: Path, stack: str, project: str, key: str) -> None:
    content = yaml.safe_load((ROOT / "stacks" / "Pulumi.dev.yaml").read_text())
    content["config"]["tpu-multislice:cloud"]["project"] = project
    (folder / f"Pulumi.{stack}.yaml").write_text(yaml.safe_dump({**content, "secretsprovider": key}))


def test_without_apply_all_is_told_and_nothing_changed(hub: GitHub, asked: Path, stacks: Path) -> None:
    told = list(set_up(WISH, stacks, hub.access(), apply=False))
    assert hub.changes == []
    assert all(line.startswith("projects describe") for line in asked.read_text().splitlines())
    reviewed = "for main and refs/pull/*/merge, after a review by octocat or owner/platform"
    assert f"  environment preview-prod: {reviewed}" in told
    assert told[-1] == "Nothing was changed. Add --apply to do this."


def test_what_was_told_is_done(hub: GitHub, asked: Path, stacks: Path) -> None:
    told = [line.strip() for line in set_up(WISH, stacks, hub.access(), apply=True)]
    done = asked.read_text().splitlines()
    planned = [line.removeprefix("gcloud ").replace("'", "") for line in told if line.startswith("gcloud ")]
    assert [line.removesuffix(" --quiet").replace("'", "") for line in done if "describe" not in line] == [
        line.replace('"', "") for line in planned
    ]
    assert hub.variables == {"CLOUD": "true"}
    assert hub.environments["prod"]["variables"] == {
        "WORKLOAD_IDENTITY_PROVIDER": "projects/42/locations/global/workloadIdentityPools/github/providers/repository",
        "SERVICE_ACCOUNT": "github-prod@project-prod.iam.gserviceaccount.com",
        "PULUMI_BACKEND_URL": "gs://project-prod-pulumi-state",
    }


def test_an_environment_has_its_branches_and_reviewers_before_an_account_believes_it(
    hub: GitHub, asked: Path, stacks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REFUSED", "github-ephemeral")
    with pytest.raises(Halt, match="github-ephemeral is refused"):
        list(set_up(WISH, stacks, hub.access(), apply=True))
    assert "environment:ephemeral" not in asked.read_text()
    ephemeral = hub.environments["ephemeral"]
    assert set(ephemeral["branches"].values()) == BOTH
    assert [each["type"] for each in ephemeral["reviewers"]] == ["User", "Team"]
    assert ephemeral["prevent_self_review"]
    assert hub.environments["dev"]["reviewers"] == []
    assert hub.variables == {}, "the workflows ask a cloud that is not set up"


def test_a_second_run_takes_back_a_branch_that_somebody_allowed(hub: GitHub, asked: Path, stacks: Path) -> None:
    list(set_up(WISH, stacks, hub.access(), apply=True))
    hub.environments["prod"]["branches"][99] = "*"
    hub.environments["prod"]["variables"]["SERVICE_ACCOUNT"] = "other"
    list(set_up(WISH, stacks, hub.access(), apply=True))
    assert set(hub.environments["prod"]["branches"].values()) == {"main"}
    assert hub.environments["prod"]["variables"]["SERVICE_ACCOUNT"].startswith("github-prod@")
    assert asked.read_text()


def test_every_fault_is_told_before_anything_is_asked(hub: GitHub, asked: Path, stacks: Path) -> None:
    write(stacks, "prod", "project-dev", "")
    wish = Wish(("dev", "prod"), "staging", (), ("test",))
    with pytest.raises(Halt) as halted:
        list(set_up(wish, stacks, hub.access(), apply=True))
    told = str(halted.value)
    assert "project-dev, which is that of dev" in told
    for place in ("secretsprovider of prod", "--ephemeral", "--unattended", "--reviewer"):
        assert place in told
    assert (hub.changes, asked.read_text()) == ([], "")


def test_the_project_of_an_example_is_refused(hub: GitHub, asked: Path, stacks: Path) -> None:
    write(stacks, "dev", "my-project", "gcpkms://projects/my-project/x")
    with pytest.raises(Halt, match="cloud.project of dev: expected a project of your own, got my-project"):
        list(set_up(WISH, stacks, hub.access(), apply=True))
    assert asked.read_text() == ""


def test_a_main_to_which_everybody_pushes_is_refused(hub: GitHub, asked: Path, stacks: Path) -> None:
    hub.protected = False
    with pytest.raises(Halt, match="expected a protected branch main"):
        list(set_up(WISH, stacks, hub.access(), apply=True))
    assert (hub.changes, asked.read_text()) == ([], "")

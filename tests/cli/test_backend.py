"""Deployments by the user's own Pulumi, with a `pulumi` that only records how it is called."""

import os
from pathlib import Path

import pytest
import yaml

from cli.backend import Backend
from cli.project_files import Files, policy_pack
from infra.cluster.stacks import NO_RENEWAL, Stacks

NAME = "trial"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "stacks").mkdir()
    return Files(tmp_path / "stacks", tmp_path / "policies")


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file with the command lines."""
    recorder, calls = tmp_path / "pulumi", tmp_path / "calls"
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho "[]"\n')
    recorder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return calls


def test_a_stack_is_made_with_the_key_that_its_file_names(files: Files, calls: Path) -> None:
    files.stack(NAME).write_text("secretsprovider: gcpkms://projects/p\nencryptedkey: AAAA\n")
    Backend(files, Stacks()).up(NAME, NO_RENEWAL, yes=True)
    assert f"stack init {NAME} --no-select --secrets-provider=gcpkms://projects/p" in calls.read_text()


def test_an_update_is_held_to_the_rules_without_exceptions_if_its_stack_has_no_settings_for_them(
    files: Files, calls: Path
) -> None:
    files.policies.mkdir()
    files.policy(NAME).write_text("{}")
    for name in (NAME, "without"):
        files.stack(name).write_text(yaml.safe_dump({"config": {}}))
        Backend(files, Stacks()).up(name, NO_RENEWAL, yes=True)
    held, free = (line for line in calls.read_text().splitlines() if line.startswith("up "))
    assert f"--policy-pack-config {files.policy(NAME)}" in held
    assert f"--policy-pack {policy_pack()} --yes" in free
    assert "--policy-pack-config" not in free

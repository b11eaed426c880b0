"""What the real Pulumi remembers of a stack, asked of a sandbox's backend: no cloud and no cluster is needed."""

import os
from collections.abc import Mapping
from pathlib import Path

import pulumi
import pytest
import yaml
from pulumi import automation

from cli.environments.backend import Backend, SandboxBackend
from cli.environments.files import Files, environment_in, policy_pack
from infra.stacks import Stacks, StacksError
from sandbox import builds, programs
from sandbox.engine import project_folder, stack_in
from sandbox.site import Site, create
from sandbox.stacks import SandboxStacks

CONFIG: Mapping[str, object] = {
    "tpu-multislice:cluster": {"name": "pr-1", "system_nodes": 1},
    "tpu-multislice:environment": {"source": "dev", "expires_at": "2026-03-01T18:00:00Z"},
}
NAME = "pr-1"


@pytest.fixture
def site(tmp_path: Path) -> Site:
    builds.prepare(lambda _: None)
    return create(tmp_path / "sandbox")


@pytest.fixture
def files(tmp_path: Path) -> Files:
    (tmp_path / "stacks").mkdir()
    return Files(tmp_path / "stacks", tmp_path / "policies")


def stack_of(site: Site) -> automation.Stack:
    """A stack that is one record and an output."""
    project = project_folder(site)
    (project / "stacks" / f"Pulumi.{NAME}.yaml").write_text(yaml.safe_dump({"config": CONFIG}))
    return stack_in(site, programs.found(), NAME, _program)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The command lines that a `pulumi` is called with that does nothing else."""
    recorder, calls = tmp_path / "pulumi", tmp_path / "calls"
    recorder.write_text(f'#!/bin/sh\necho "$@" >> {calls}\necho "[]"\n')
    recorder.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return calls


def _program() -> None:
    pulumi.Stash("record", input=1)
    pulumi.export("cluster", "pr-1")
    if pulumi.Config().get_bool("broken"):
        raise ValueError("broken")


@pytest.mark.costs(cpu_seconds=15)
def test_a_stack_is_known_and_restored_without_its_file_after_an_update_that_failed(site: Site, files: Files) -> None:
    stack = stack_of(site)
    stack.up()
    stack.set_config("broken", automation.ConfigValue("true"))
    with pytest.raises(automation.CommandError, match="broken"):
        stack.up()
    for path in (project_folder(site) / "stacks").iterdir():
        path.unlink()
    backend = SandboxBackend(files, SandboxStacks(site.root))

    assert [*backend.names()] == [NAME]
    last, first = backend.updates(NAME)
    assert [(each.kind, each.result) for each in (last, first)] == [("update", "failed"), ("update", "succeeded")]
    found = environment_in(last.config)
    assert found
    assert found.source == "dev"
    assert backend.outputs(NAME) == {"cluster": "pr-1"}
    assert backend.resources(NAME) == ["pulumi:index:Stash record"]
    backend.restore(NAME)
    restored = yaml.safe_load(files.stack(NAME).read_text())
    assert restored["config"] == {**CONFIG, "tpu-multislice:broken": "true"}
    with pytest.raises(StacksError, match="still has resources"):
        backend.remove(NAME)


@pytest.mark.costs(cpu_seconds=8)
def test_updates_reach_back_to_the_first_behind_many_others(site: Site, files: Files) -> None:
    stack_of(site).up()
    history = site.root / "state" / ".pulumi" / "history" / "tpu-multislice" / NAME
    (first,) = history.glob("*.history.json")
    for later in range(11):
        (history / f"{NAME}-{2**62 + later}.history.json").write_bytes(first.read_bytes())
    assert len(SandboxBackend(files, SandboxStacks(site.root)).updates(NAME)) == 12


@pytest.mark.costs(cpu_seconds=8)
def test_a_stack_that_was_never_updated_is_reported_and_can_be_forgotten(site: Site, files: Files) -> None:
    stack_of(site)
    backend = SandboxBackend(files, SandboxStacks(site.root))
    assert ([*backend.names()], [*backend.updates(NAME)], [*backend.resources(NAME)]) == ([NAME], [], [])
    backend.remove(NAME)
    assert [*backend.names()] == []


def test_a_sandbox_that_does_not_run_is_asked_and_not_operated(site: Site, files: Files) -> None:
    backend = SandboxBackend(files, SandboxStacks(site.root))
    assert [*backend.names()] == []
    with pytest.raises(StacksError, match="is not running; start it with `multislice up -s STACK --sandbox"):
        backend.up(NAME)


def test_a_stack_is_made_with_the_key_that_its_file_names(files: Files, calls: Path) -> None:
    files.stack(NAME).write_text("secretsprovider: gcpkms://projects/p\nencryptedkey: AAAA\n")
    Backend(files, Stacks()).up(NAME)
    assert f"stack init {NAME} --no-select --secrets-provider=gcpkms://projects/p" in calls.read_text()


def test_an_update_is_held_to_the_rules_without_exceptions_if_its_stack_has_no_settings_for_them(
    files: Files, calls: Path
) -> None:
    files.policies.mkdir()
    files.policy(NAME).write_text("{}")
    for name in (NAME, "without"):
        files.stack(name).write_text(yaml.safe_dump({"config": CONFIG}))
        Backend(files, Stacks()).up(name)
    held, free = (line for line in calls.read_text().splitlines() if line.startswith("up "))
    assert f"--policy-pack-config {files.policy(NAME)}" in held
    assert f"--policy-pack {policy_pack()} --yes" in free
    assert "--policy-pack-config" not in free

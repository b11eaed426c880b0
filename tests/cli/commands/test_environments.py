"""Commands about environments as people type them, on a backend in memory: each option reaches what it is for."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cli.commands.options import Engine
from cli.environments.files import Files
from cli.multislice import app
from tests.cli.environments.conftest import stacks_of_our_own
from tests.cli.environments.remembered import Remembered

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """What time it is: the newest entry."""
    times = [NOW]
    monkeypatch.setattr("cli.commands.environments._now", lambda: times[-1])
    return times


@pytest.fixture
def backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Remembered:
    """One that knows the stack dev, in the sandbox in the folder `here`."""
    stacks_of_our_own(tmp_path / "stacks")
    (tmp_path / "policies").mkdir()
    found = Remembered(Files(tmp_path / "stacks", tmp_path / "policies"), NOW)
    found.up("dev")

    def of(engine: Engine, sandbox: Path) -> Remembered:
        assert (engine, sandbox) == (Engine.SANDBOX, Path("here"))
        return found

    monkeypatch.setattr("cli.commands.environments._backend", of)
    monkeypatch.setattr("cli.environments.files.OURS", found.files)
    return found


def told(*words: str, exit_status: int = 0) -> str:
    found = CliRunner().invoke(app, ["env", *words, "--engine", "sandbox", "--sandbox", "here"])
    assert found.exit_code == exit_status, found.output
    return found.stdout


def names(answer: str) -> list[str]:
    listed: Any = json.loads(answer)
    return [each["name"] for each in listed["environments"]]


@pytest.mark.usefixtures("clock")
def test_an_environment_is_made_of_the_stack_for_the_time_that_is_asked_for(backend: Remembered) -> None:
    told("create", "pr-1", "--from", "dev", "--ttl", "8h")
    assert "pr-1" in backend.stacks
    (listed,) = json.loads(told("list", "--json"))["environments"]
    assert (listed["name"], listed["source"], listed["expires_at"]) == ("pr-1", "dev", "2026-03-01T18:00:00Z")


@pytest.mark.usefixtures("clock")
def test_an_environment_of_files_alone_is_not_brought_up(backend: Remembered) -> None:
    told("create", "pr-1", "--from", "dev", "--ttl", "8h", "--only-file")
    assert "pr-1" not in backend.stacks
    assert backend.files.stack("pr-1").exists()
    assert json.loads(told("create", "pr-2", "--from", "dev", "--ttl", "8h", "--json"))["name"] == "pr-2"


@pytest.mark.usefixtures("backend")
def test_environments_are_listed_all_or_those_alone_whose_time_is_over(clock: list[datetime]) -> None:
    told("create", "pr-1", "--from", "dev", "--ttl", "8h")
    told("create", "pr-2", "--from", "dev", "--ttl", "2d")
    clock.append(NOW + timedelta(hours=9))
    assert names(told("list", "--json")) == ["pr-1", "pr-2"]
    assert names(told("list", "--expired", "--json", exit_status=2)) == ["pr-1"]
    assert "| --" in told("list", "--markdown")
    assert not told("list").startswith(("{", "#"))


def test_environments_are_destroyed_by_name_or_when_their_time_is_over(
    backend: Remembered, clock: list[datetime]
) -> None:
    for name, ttl in (("pr-1", "8h"), ("pr-2", "2d"), ("pr-3", "2d")):
        told("create", name, "--from", "dev", "--ttl", ttl)
    clock.append(NOW + timedelta(hours=9))
    assert "| --" in told("destroy", "--expired", "--markdown")
    assert [*backend.stacks] == ["dev", "pr-2", "pr-3"]
    assert names(told("destroy", "pr-3", "--json")) == ["pr-3"]
    assert [*backend.stacks] == ["dev", "pr-2"]

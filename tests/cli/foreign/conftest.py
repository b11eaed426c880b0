"""Commands on a played cluster, chosen by a kubeconfig alone."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.cli.api_server import Played, playing
from tests.cli.rehearse.clusters import kubeconfig

type Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run a command on a played cluster. It must change nothing there."""

    def command(played: Played, *words: str, exit_status: int = 0) -> Result:
        with playing(played):
            config = kubeconfig(tmp_path, played)
            found = CliRunner().invoke(app, [*words, "--kubeconfig", config], env={"COLUMNS": "160"})
        assert found.exit_code == exit_status, (found.output, found.exception)
        assert (played.version, played.deleted, played.applied) == (0, [], {})
        return found

    return command


@pytest.fixture
def answer(run: Run) -> Callable[..., dict[str, Any]]:
    """Return the answer of a command in JSON."""

    def command(played: Played, *words: str, **more: Any) -> dict[str, Any]:
        return json.loads(run(played, *words, "-o", "json", **more).stdout)

    return command

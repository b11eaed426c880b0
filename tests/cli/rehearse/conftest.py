"""`multislice rehearse` on a played cluster, through the command line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from tests.cli.api_server import Played, playing
from tests.cli.rehearse.clusters import (
    Rehearse,
    kubeconfig,
    written,
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Result]:
    """Run the command on a played cluster and documents. Only GET requests succeed there."""

    def command(played: Played, *documents: object, options: tuple[str, ...] = (), source: str | None = None) -> Result:
        file = "-" if source is not None else written(tmp_path, *documents)
        with playing(played):
            config = kubeconfig(tmp_path, played)
            words = ["rehearse", file, "--kubeconfig", config, *options]
            return CliRunner().invoke(app, words, input=source, env={"COLUMNS": "160"})

    return command


@pytest.fixture
def rehearse(run: Callable[..., Result]) -> Rehearse:
    """Return the answer to the first document."""

    def command(played: Played, *documents: object, **more: Any) -> dict[str, Any]:
        found = run(played, *documents, options=("-o", "json"), **more)
        assert found.exit_code in (0, 2), found.output
        answer = json.loads(found.stdout)
        (job, *_) = answer["jobs"]
        assert (found.exit_code == 0) == all(each["outcome"] in ("admitted", "preempts") for each in answer["jobs"])
        return job

    return command

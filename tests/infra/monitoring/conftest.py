"""Prometheus' own checker."""

import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import yaml

from sandbox.builds import PROMTOOL, prepare_one


@pytest.fixture(scope="session")
def promtool() -> Path:
    return prepare_one(PROMTOOL, lambda _: None)


@pytest.fixture
def promtool_says(promtool: Path, tmp_path: Path) -> Callable[..., str]:
    """Gives what promtool says against rule groups, and against tests of them if there are any; empty if nothing."""

    def says(groups: object, tests: Sequence[object] = ()) -> str:
        rules = tmp_path / "rules.yaml"
        rules.write_text(yaml.safe_dump({"groups": groups}))
        command: list[str | Path] = [promtool, "check", "rules", "--lint-fatal", rules]
        if tests:
            tried = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests}
            (tmp_path / "tests.yaml").write_text(yaml.safe_dump(tried, sort_keys=False))
            command = [promtool, "test", "rules", tmp_path / "tests.yaml"]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        return "" if found.returncode == 0 else found.stdout + found.stderr

    return says

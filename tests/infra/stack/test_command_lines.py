import shlex
import subprocess
from pathlib import Path

import pytest

from infra.stack.command_lines import MAKE_VARIABLE, command_line, stored_command_line

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("options", [(), ("--stop-jobs",), ("--sandbox", "/a b"), ("--replace", "**::job-tiny")])
def test_what_make_has_run_is_run_by_make_again_with_the_same_options(
    options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The shell and make pass the options on unchanged."""
    monkeypatch.setenv(MAKE_VARIABLE, "local")
    # The variables of the `make` that runs the tests.
    for name in ("MAKELEVEL", "MAKEFLAGS", "ARGS"):
        monkeypatch.delenv(name, raising=False)
    advised = command_line("down", "local", *options)
    shown = subprocess.run(f"{advised} --dry-run", shell=True, cwd=ROOT, capture_output=True, text=True, check=True)
    last = shlex.split(shown.stdout.splitlines()[-1])
    assert tuple(last[last.index("--sandbox") + 1 :]) == options
    assert last[0] == f"{MAKE_VARIABLE}=local"


def test_a_stored_command_line_is_the_same_for_make(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAKE_VARIABLE, "local")
    assert stored_command_line("up", "local") == "multislice up -s local"


def test_make_runs_no_other_stack_and_no_other_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MAKE_VARIABLE, "local")
    assert command_line("up", "dev") == "multislice up -s dev"
    assert command_line("status", "local") == "multislice status -s local"

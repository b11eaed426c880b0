"""What a shell offers, asked as a shell asks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli import options

ROOT = Path(__file__).parents[2]


def offered(*words: str) -> list[str]:
    asked = {"COMP_WORDS": " ".join(["multislice", *words]), "COMP_CWORD": str(len(words))}
    answer = {**os.environ, **asked, "_MULTISLICE_COMPLETE": "complete_bash"}
    return subprocess.run(
        [sys.executable, "-m", "cli.main"], cwd=ROOT, env=answer, capture_output=True, text=True, check=True
    ).stdout.split()


def test_names_of_commands_stacks_and_jobs_are_offered() -> None:
    assert offered("canc") == ["cancel"]
    assert offered("logs", "--stack", "lo") == ["local"]
    assert offered("logs", "-s", "local", "ti") == ["tiny"]
    assert offered("status", "--engine", "s") == ["sandbox"]


@pytest.mark.parametrize(
    "content", ["", "[]", "config: 1", "config: {tpu-multislice:jobs: [1]}", "{", "config: !!int x"]
)
def test_a_stack_file_that_cannot_be_read_offers_nothing(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.broken.yaml").write_text(content)
    (tmp_path / "Pulumi.sound.yaml").write_text("config: {tpu-multislice:jobs: {small: {}, large: {}}}")
    monkeypatch.setattr("cli.stack_file.stacks_folder", lambda: tmp_path)
    assert options.complete_stacks("") == ["broken", "sound"]
    assert options.names_of_jobs(None) == ["large", "small"]
    assert options.names_of_jobs("broken") == []

"""What a shell offers, asked as a shell asks."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from cli import options

ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "bin" / "multislice"


def offered(*words: str) -> list[str]:
    asked = {"COMP_WORDS": " ".join(["multislice", *words]), "COMP_CWORD": str(len(words))}
    answer = {**os.environ, **asked, "_MULTISLICE_COMPLETE": "complete_bash"}
    return subprocess.run([PROGRAM], env=answer, capture_output=True, text=True, check=True).stdout.split()


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


def test_the_command_runs_from_any_folder_and_by_a_link_to_it(tmp_path: Path) -> None:
    link = tmp_path / "multislice"
    link.symlink_to(PROGRAM)
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "multislice.py").write_text("raise SystemExit('of another project')")
    ended = subprocess.run([link, "logs", "--help"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "Usage: multislice logs" in ended.stdout) == (0, True)


def test_without_its_environment_the_command_says_what_makes_it(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    copy = shutil.copy(PROGRAM, tmp_path / "bin")
    ended = subprocess.run([copy, "list"], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.strip().endswith(f"found none; run: make -C {tmp_path} environment")

import io
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from cli import stack_file
from cli.halt import Halt
from cli.up import up
from sandbox.daemon import CHECKOUT


def test_a_folder_with_other_files_never_becomes_a_sandbox(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()

    with pytest.raises(Halt, match=r"holds other files"):
        up(stack_file.find("local"), tmp_path, Console(file=io.StringIO()))

    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_wrong_stack_ends_the_command_with_a_message_before_anything_starts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli.up", "--stack", "nowhere", "--sandbox", str(tmp_path / "sandbox")]

    ended = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert ended.returncode == 1
    assert "got 'nowhere'; choose one of: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "sandbox").exists()

"""`multislice` as a person types it about the stack in the sandbox."""

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from cli.main import app
from sandbox.daemon import CHECKOUT
from tests.chain.stack import Chain


@dataclass(frozen=True)
class Followed:
    """A `multislice logs --follow` in a process of its own."""

    process: subprocess.Popen[bytes]
    output: Path


def typed(chain: Chain, *words: str) -> str:
    """What the command prints; it succeeds."""
    ended = CliRunner().invoke(app, [*_line(chain, *words)], env={"COLUMNS": "160"})
    assert ended.exit_code == 0, ended.output
    return ended.stdout


def answered(chain: Chain, *words: str) -> dict[str, Any]:
    """The answer of a command that succeeds, as JSON."""
    return json.loads(typed(chain, *words, "-o", "json"))


def run(chain: Chain, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    line = [sys.executable, "-m", "cli.main", *_line(chain, *words)]
    return subprocess.run(line, cwd=CHECKOUT, input=stdin, capture_output=True, text=True, timeout=300, check=False)


@contextmanager
def following(chain: Chain, job: str) -> Generator[Followed]:
    """Follow the leader's log of the job until the block ends."""
    output = chain.folder / "followed"
    line = [sys.executable, "-m", "cli.main", *_line(chain, "logs", job, "--follow")]
    with output.open("wb") as file, subprocess.Popen(line, cwd=CHECKOUT, stdout=file) as process:
        try:
            yield Followed(process, output)
        finally:
            process.kill()


def _line(chain: Chain, name: str, *words: str) -> list[str]:
    return [name, "-s", "local", "--engine", "sandbox", "--sandbox", str(chain.site.root), *words]

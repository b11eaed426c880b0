"""Programs that write down what they are asked, in place of `gh` and `gcloud`."""

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

_PROGRAM = """#!/bin/sh
echo "${0##*/} $*" >> "$STAND_IN/asked"
case "$*" in *"--input -"*) cat >> "$STAND_IN/asked"; echo >> "$STAND_IN/asked" ;; esac
. "$STAND_IN/answers"
"""


@dataclass(frozen=True)
class StandIn:
    """`gh` and `gcloud` as far as they are used here."""

    folder: Path

    def answers(self, **of: object) -> None:
        """Answer a command line that has one of these texts in it, by the first one that fits."""
        answers = {text: shlex.quote(json.dumps(each)) for text, each in of.items()}
        cases = [f"  *{shlex.quote(text)}*) printf '%s\\n' {answer} ;;" for text, answer in answers.items()]
        self.write("\n".join(['case "$*" in', *cases, "esac"]))

    def write(self, script: str) -> None:
        (self.folder / "answers").write_text(script)

    @property
    def asked(self) -> list[str]:
        """Command lines, each followed by its input if it had one."""
        return (self.folder / "asked").read_text().splitlines()

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process finds these programs."""
        return {"PATH": f"{self.folder}{os.pathsep}{os.environ['PATH']}", "STAND_IN": str(self.folder)}


def installed(folder: Path) -> StandIn:
    """Put the programs into a folder."""
    for name in ("gh", "gcloud"):
        (folder / name).write_text(_PROGRAM)
        (folder / name).chmod(0o755)
    (folder / "asked").touch()
    (folder / "answers").touch()
    return StandIn(folder)


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    folder = tmp_path / "programs"
    folder.mkdir()
    made = installed(folder)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made

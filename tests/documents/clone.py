"""A clone of the repository, in which tests run the commands of the documents as they stand."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import copy_checkout

_SETTINGS_OF_TESTS = ("JAX_", "MULTISLICE_", "PYTHONPATH", "PULUMI_", "VIRTUAL_ENV")
"""Beginnings of the names of variables that a reader's shell does not have."""


@dataclass(frozen=True)
class Clone:
    """A clone with an environment, in a folder of its own."""

    root: Path

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables of a new shell in this clone."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(_SETTINGS_OF_TESTS)}
        # The packages are those of the tests' environment, in which the project is another checkout.
        return {**own, "PYTHONPATH": str(self.root)}

    def start(self, script: str, output: Path) -> subprocess.Popen[bytes]:
        """Start a script in a new shell, in the background, with its output in a file."""
        with output.open("wb") as file:
            return subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.root,
                env=self.variables,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    def run(self, lines: Sequence[str], statuses: Mapping[str, int] | None = None) -> str:
        """Run lines one after the other in one new shell. Return their output.

        Each must exit with 0, or with its status in `statuses`.
        """
        wanted = statuses or {}
        checked = [f"{line}\n[ $? = {wanted.get(line, 0)} ] || {{ echo FAILED; exit 1; }}" for line in lines]
        ended = subprocess.run(
            ["bash", "-c", "\n".join(checked)],
            cwd=self.root,
            env=self.variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert ended.returncode == 0, f"{lines}\n{ended.stdout}{ended.stderr}"
        return ended.stdout + ended.stderr


def clone_in(root: Path) -> Clone:
    """Clone the checkout as it is now, with the packages of these tests as its environment."""
    copy_checkout(root)
    for command in (["init", "--quiet"], ["add", "--all"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    environment = root / ".venv"
    environment.mkdir()
    for part in Path(sys.prefix).iterdir():
        if not part.name.startswith("installed-"):
            (environment / part.name).symlink_to(part.resolve())
    # Otherwise make would install the packages again.
    subprocess.run(["make", "--touch", "--silent", "environment"], cwd=root, check=True)
    return Clone(root)

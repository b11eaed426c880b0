"""The package as pip installs it, away from the repository."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkout import copy_checkout

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
VALUES = ("--project", "acme-tpus", "--generation", "v6e", "--topology", "4x4", "--zone", "us-east5-b")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the installed package, without its dependencies. It is built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("installed")
    sources = folder / "sources"
    copy_checkout(sources)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(sources)]
    subprocess.run([*PIP, *build], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run(
        [*PIP, "install", "--no-deps", "--no-index", "--target", str(folder / "site"), str(wheel)], check=True
    )
    return folder / "site"


@pytest.fixture
def empty_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def multislice(installed: Path, folder: Path, *words: str, exit_status: int = 0) -> str:
    # The installed package comes before the repository, which the environment of the tests has as well.
    environment = {**os.environ, "PYTHONPATH": str(installed), "PWD": str(folder)}
    command = [sys.executable, str(installed / "bin" / "multislice"), *words]
    ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == exit_status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.mark.costs(cpu_seconds=20)
def test_the_package_makes_a_project_whose_stack_passes_the_review(installed: Path, empty_folder: Path) -> None:
    assert "multislice init" in multislice(installed, empty_folder, "review", "-s", "dev", exit_status=1)
    multislice(installed, empty_folder, "init", *VALUES)
    review = json.loads(multislice(installed, empty_folder, "review", "-s", "dev", "-o", "json"))
    assert (review["stack"], review["refused"]) == ("dev", [])


@pytest.mark.complete
def test_the_package_previews_the_stack_of_a_new_project(installed: Path, empty_folder: Path) -> None:
    multislice(installed, empty_folder, "init", *VALUES)
    preview = json.loads(multislice(installed, empty_folder, "preview", "-s", "dev", "-o", "json"))
    assert (preview["errors"], preview["findings"]) == ([], [])
    assert {"trainer", "cluster", "job-tiny"} <= {change["name"] for change in preview["changes"]}

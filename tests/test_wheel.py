"""The package as pip installs it, away from the repository."""

import ast
import base64
import csv
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.checkout import copy_checkout

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")
VALUES = ("--project", "acme-tpus", "--generation", "v6e", "--topology", "4x4", "--zone", "us-east5-b")
PACKAGE, LIBRARIES = "tpu_multislice", ("multislice", "multislice_run")
_NAMES_OF_OTHERS = ("cli", "infra", "policy", "sandbox", "tools", "workloads")
_MAX_MB = 25
"""Size of an installation without bytecode."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources."""
    folder = tmp_path_factory.mktemp("wheel")
    sources = folder / "sources"
    copy_checkout(sources)
    build = ["wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", str(folder), str(sources)]
    subprocess.run([*PIP, *build], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def files(wheel: Path) -> dict[str, bytes]:
    """Contents of the wheel by their paths."""
    with ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def installed(wheel: Path) -> Path:
    """The folder with the installed package, without its dependencies."""
    site = wheel.parent / "site"
    subprocess.run([*PIP, "install", "--no-deps", "--no-index", "--target", str(site), str(wheel)], check=True)
    return site


@pytest.fixture(scope="module")
def base(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages that an installation without extras has."""
    folder = tmp_path_factory.mktemp("base")
    for found in _with_dependencies(Distribution.at(next(installed.glob("*.dist-info"))), frozenset(), {}).values():
        for top in {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (folder / top).symlink_to(Path(str(found.locate_file(top))).resolve())
    return folder


def _with_dependencies(
    found: Distribution, extras: frozenset[str], known: dict[str, Distribution]
) -> dict[str, Distribution]:
    """Add the packages that one needs to those that are known."""
    for needed in map(Requirement, found.requires or ()):
        applies = needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras))
        if applies and needed.name not in known:
            known[needed.name] = distribution(needed.name)
            _with_dependencies(known[needed.name], frozenset(needed.extras), known)
    return known


@pytest.fixture
def empty_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def run(*words: str, path: tuple[Path, ...], folder: Path, exit_status: int = 0) -> str:
    """Run this Python with folders of packages that come before the repository, which its environment has as well."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PWD": str(folder)}
    ended = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == exit_status, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def multislice(installed: Path, folder: Path, *words: str, exit_status: int = 0) -> str:
    command = str(installed / "bin" / "multislice")
    return run(command, *words, path=(installed,), folder=folder, exit_status=exit_status)


@pytest.mark.costs(cpu_seconds=10)
def test_the_wheel_has_only_packages_with_names_of_its_own(files: Mapping[str, bytes]) -> None:
    tops = {name.partition("/")[0] for name in files}
    (metadata,) = (top for top in tops if top.endswith(".dist-info"))
    assert tops - {metadata} == {PACKAGE, *LIBRARIES}
    assert files[f"{metadata}/top_level.txt"].decode().split() == sorted((PACKAGE, *LIBRARIES))
    recorded = {row[0]: row[1:] for row in csv.reader(files[f"{metadata}/RECORD"].decode().splitlines())}
    assert recorded.keys() == files.keys()
    for name in files.keys() - {f"{metadata}/RECORD"}:
        digest = base64.urlsafe_b64encode(hashlib.sha256(files[name]).digest()).rstrip(b"=").decode()
        assert recorded[name] == [f"sha256={digest}", str(len(files[name]))]


@pytest.mark.costs(cpu_seconds=10)
def test_every_import_finds_its_module_in_the_wheel(files: Mapping[str, bytes]) -> None:
    modules = {module for name in files if name.endswith(".py") for module in (name[:-3], name.removesuffix("/__init__.py"))}
    own = (PACKAGE, *LIBRARIES)
    for name in (name for name in files if name.endswith(".py")):
        for imported in _imported(PurePosixPath(name), ast.parse(files[name])):
            top = imported.partition("/")[0]
            assert top not in _NAMES_OF_OTHERS, (name, imported)
            assert top not in own or imported in modules or f"{imported}/__init__" in modules, (name, imported)


def _imported(path: PurePosixPath, source: ast.Module) -> Iterator[str]:
    """Yield the modules that a source file imports, as paths."""
    for node in ast.walk(source):
        if isinstance(node, ast.Import):
            yield from (alias.name.replace(".", "/") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").replace(".", "/")
        elif isinstance(node, ast.ImportFrom):
            folder = path.parents[node.level - 1]
            # What the image copies may import only modules of its own folder in this way.
            assert path.parts[:2] == folder.parts[:2] == (PACKAGE, "workloads")
            yield str(folder / (node.module or "").replace(".", "/"))


@pytest.mark.costs(cpu_seconds=20)
def test_the_package_makes_a_project_whose_stack_passes_the_review(installed: Path, empty_folder: Path) -> None:
    assert "multislice init" in multislice(installed, empty_folder, "review", "-s", "dev", exit_status=1)
    multislice(installed, empty_folder, "init", *VALUES)
    assert f"{PACKAGE}.infra.program" in (empty_folder / "__main__.py").read_text()
    review = json.loads(multislice(installed, empty_folder, "review", "-s", "dev", "-o", "json"))
    assert (review["stack"], review["refused"]) == ("dev", [])


_EACH = """
import contextlib, io, json, sys
from importlib.metadata import entry_points
(command,) = entry_points(group="console_scripts", name="multislice")
main, answers = command.load(), []
for line in sys.argv[1:]:
    sys.argv, said = line.split(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main()
        except SystemExit as end:
            answers.append([end.code, said.getvalue()])
print(json.dumps(answers))
"""
"""Runs command lines in one process, because starting many takes long."""

_OF_A_CLUSTER = ("list", "status", "explain", "logs", "cancel", "submit --name a --slices a:1 -- a", "enforce-budget")
_NO_EXTRAS = {
    **{f"multislice {words} --kubeconfig none": "there is no file none" for words in _OF_A_CLUSTER[:-1]},
    "multislice rehearse job.yaml --kubeconfig none": "there is no file none",
    "multislice report .": "found no run",
    "multislice render --job-file job.yaml": "--capacity: expected a value",
    "multislice doctor -s dev": "run it",
    "multislice report gs://a/b": "tpu-multislice[gs]",
    "multislice up -s dev --sandbox": "tpu-multislice[stack]",
    "multislice preview -s dev": "tpu-multislice[stack]",
    "multislice down -s dev --sandbox": "tpu-multislice[stack]",
    "multislice drift -s dev": "tpu-multislice[stack]",
}
"""Command lines in an environment without extras, and a part of their answers."""

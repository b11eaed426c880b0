"""The package as pip installs it, away from the repository."""

import ast
import base64
import csv
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution, distribution
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

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
        name = canonicalize_name(needed.name)
        if applies and name not in known:
            known[name] = distribution(name)
            _with_dependencies(known[name], frozenset(needed.extras), known)
    return known


@pytest.fixture
def empty_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    return folder


def run(*words: str, path: tuple[Path, ...], folder: Path, exit_status: int = 0, **variables: str) -> str:
    """Run this Python with folders of packages that come before the repository, which its environment has as well."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), "PWD": str(folder), **variables}
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
    modules = {
        module for name in files if name.endswith(".py") for module in (name[:-3], name.removesuffix("/__init__.py"))
    }
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
            answers.append(said.getvalue())
print(json.dumps(answers))
"""
"""Runs command lines in one process, because starting many takes long."""

_WITHOUT_EXTRAS = {
    **{
        f"{name} --kubeconfig none": "there is no file none" for name in ("list", "status", "explain", "logs", "cancel")
    },
    "rehearse job.yaml --kubeconfig none": "there is no file none",
    "submit --kubeconfig none --name a --slices a:1 -- a": "there is no file none",
    "render --job-file job.yaml": "--capacity: expected a value",
    "render -s dev tiny": "kind: JobSet",
    "doctor -s dev -o json": '"checks": [',
    "review -s dev -o json": '"refused": []',
    "report stacks": "found no run",
    "report gs://a/b": "the package gcsfs; install it with pip install 'tpu-multislice[gs]'",
    "up -s dev --sandbox --yes": "install it with pip install 'tpu-multislice[stack]'",
    "down -s dev --sandbox --yes": "install it with pip install 'tpu-multislice[stack]'",
    "preview -s dev": "the package pulumi; install it with pip install 'tpu-multislice[stack]'",
    "drift -s dev": "the package pulumi; install it with pip install 'tpu-multislice[stack]'",
    "preflight -s dev": "the package jax; install it with pip install 'tpu-multislice[trainer]'",
}
"""Command lines in an environment without extras, and a part of their answers."""


@pytest.mark.costs(cpu_seconds=10)
def test_commands_run_without_extras_or_say_which_one_they_need(
    installed: Path, base: Path, empty_folder: Path
) -> None:
    init = " ".join(("init", *VALUES))
    # Without the packages of the environment that runs this test.
    words = ("-S", "-c", _EACH, *(f"multislice {line}" for line in (init, *_WITHOUT_EXTRAS)))
    # Without gcloud and Pulumi, which would ask Google about the stack.
    answers = json.loads(run(*words, path=(installed, base), folder=empty_folder, PATH="none"))
    assert {
        line: said for line, said in zip(_WITHOUT_EXTRAS, answers[1:], strict=True) if _WITHOUT_EXTRAS[line] not in said
    } == {}


def test_an_installation_without_extras_is_small(installed: Path, base: Path) -> None:
    sizes = (path.stat().st_size for top in (installed, *base.iterdir()) for path in _plain_files(top))
    assert sum(sizes) < _MAX_MB * 1e6


def _plain_files(top: Path) -> Iterator[Path]:
    """Yield the files of a package without bytecode."""
    yield from (
        path for path in (top.rglob("*") if top.is_dir() else [top]) if path.is_file() and path.suffix != ".pyc"
    )


_THEIRS = """
import json, sys
import infra, multislice, policy.rules, tools
own = [name for name in sys.modules if name.partition(".")[0] in ("cli", "infra", "policy", "sandbox", "workloads")]
print(json.dumps([infra.THEIRS, policy.rules.THEIRS, sorted(own), multislice.__file__]))
"""


@pytest.mark.costs(cpu_seconds=15)
def test_the_library_and_the_commands_work_next_to_packages_of_the_same_names(
    installed: Path, empty_folder: Path, tmp_path: Path
) -> None:
    others = tmp_path / "others"
    for name in _NAMES_OF_OTHERS:
        for file in (others / name / "__init__.py", others / name / "rules" / "__init__.py"):
            file.parent.mkdir(parents=True)
            file.write_text("THEIRS = True\n")
    path = (others, installed)
    infra, rules, own, library = json.loads(run("-c", _THEIRS, path=path, folder=empty_folder))
    assert (infra, rules, own) == (True, True, ["infra", "policy", "policy.rules"])
    assert Path(library).is_relative_to(installed)
    command = str(installed / "bin" / "multislice")
    run(command, "init", *VALUES, path=path, folder=empty_folder)
    review = json.loads(run(command, "review", "-s", "dev", "-o", "json", path=path, folder=empty_folder))
    assert review["refused"] == []


_SENT = """
import pickle, sys
from multislice import checkpoint_folder
from tpu_multislice.workloads import spec
from tpu_multislice.workloads.call import pickling
if sys.argv[1] == "send":
    sent = [checkpoint_folder, pickling.TooLarge, spec, {"a": pickling.TooLarge("b")}]
    print(pickling.pickled({}, sent, pickling.never_travels).hex())
else:
    error = pickling.unpickled(bytes.fromhex(sys.argv[1]))
    assert isinstance(error, pickling.TooLarge), error
"""
_OF_A_HOST = """
import pickle, sys
from workloads import spec
from workloads.call import checkpoints, pickling
function, kind, module, held = pickle.loads(bytes.fromhex(sys.argv[1]))
assert (function, kind, module) == (checkpoints.checkpoint_folder, pickling.TooLarge, spec)
assert isinstance(held["a"], pickling.TooLarge)
assert not [name for name in sys.modules if name.startswith("tpu_multislice")]
print(pickling.pickled({}, held["a"], pickling.never_travels).hex())
"""


@pytest.mark.costs(cpu_seconds=10)
def test_the_package_and_the_image_name_the_same_modules_in_what_they_send(installed: Path, empty_folder: Path) -> None:
    sent = run("-c", _SENT, "send", path=(installed,), folder=empty_folder).strip()
    # The folder whose files an image copies.
    answer = run("-c", _OF_A_HOST, sent, path=(installed / PACKAGE,), folder=empty_folder).strip()
    run("-c", _SENT, answer, path=(installed,), folder=empty_folder)


@pytest.mark.complete
def test_the_package_previews_the_stack_of_a_new_project(installed: Path, empty_folder: Path) -> None:
    multislice(installed, empty_folder, "init", *VALUES)
    preview = json.loads(multislice(installed, empty_folder, "preview", "-s", "dev", "-o", "json"))
    assert (preview["errors"], preview["findings"]) == ([], [])
    assert {"trainer", "cluster", "job-tiny"} <= {change["name"] for change in preview["changes"]}

"""The image without building it: files in its Dockerfile exist, packages are locked, and nothing else is included."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.checkout import ROOT
from workloads.spec import ExitCode

PACKAGES = ("multislice_run", "workloads")
_NODE = {
    "python_version": "3.13",
    "python_full_version": "3.13.0",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "implementation_name": "cpython",
    "os_name": "posix",
    "extra": "",
}
"""Environment markers of nodes that run the image."""


def _instructions() -> list[tuple[str, str]]:
    lines = (ROOT / "workloads" / "Dockerfile").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ")
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in text.splitlines() if line)]


def _all(instruction: str) -> list[str]:
    return [rest for name, rest in _instructions() if name == instruction]


def _installation() -> tuple[list[str], str]:
    """Return the command that installs the packages, and the lock that it reads."""
    (install,) = (command for command in _all("RUN") if command.startswith("pip install "))
    *command, option, lock = install.split()
    assert option == "-r"
    return command, lock


def _locked() -> list[tuple[Requirement, int]]:
    """Return each requirement of the image's lock, and its number of hashes."""
    lines = (ROOT / _installation()[1]).read_text().splitlines()
    entries = "\n".join(line for line in lines if not line.lstrip().startswith("#")).replace("\\\n", " ").splitlines()
    split = [entry.split("--hash=") for entry in entries if entry.strip()]
    return [(Requirement(requirement.strip()), len(hashes)) for requirement, *hashes in split]


def _lets_in(path: str) -> bool:
    """Return whether the build includes `path`. The last matching rule of Dockerfile.dockerignore decides."""
    seen = True
    for rule in (ROOT / "workloads" / "Dockerfile.dockerignore").read_text().splitlines():
        pattern = rule.removeprefix("!")
        if not rule or rule.startswith("#"):
            continue
        anywhere = pattern.startswith("**/") and pattern.removeprefix("**/") in Path(path).parts
        if pattern == "*" or path == pattern or path.startswith(f"{pattern}/") or anywhere:
            seen = rule.startswith("!")
    return seen


def test_python_is_the_one_that_the_lock_was_made_for() -> None:
    version = (ROOT / ".python-version").read_text().strip()
    (base,) = _all("FROM")
    assert re.fullmatch(rf"python:{re.escape(version)}-slim(@sha256:[0-9a-f]{{64}})?", base)


def test_every_locked_package_is_pinned_by_version_and_hash_which_pip_requires() -> None:
    assert "--require-hashes" in _installation()[0]
    for requirement, hashes in _locked():
        (pin,) = requirement.specifier
        assert pin.operator == "==", requirement
        assert hashes, requirement


def _imported() -> Iterator[str]:
    """Yield the top-level names of all modules that the image's own import, without the standard library and those."""
    for file in (file for package in PACKAGES for file in (ROOT / package).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            else:
                continue
            yield from {name.split(".")[0] for name in names} - sys.stdlib_module_names - set(PACKAGES)


def test_what_the_trainer_imports_is_locked_for_the_nodes_that_run_it() -> None:
    locked = {entry.name for entry, _ in _locked() if entry.marker is None or entry.marker.evaluate(_NODE)}
    providers = packages_distributions()
    needed = {canonicalize_name(providers[module][0]) for module in _imported()}
    assert {"jax", "flax", "orbax-checkpoint", "pydantic"} <= needed
    # No source file names the two runtimes.
    assert needed | {"libtpu", "gcsfs"} <= locked


def test_all_that_is_copied_exists_and_is_let_in() -> None:
    patterns = [source for rest in _all("COPY") for source in rest.split()[:-1]]
    copied = [str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)]
    assert len(copied) == len(patterns)
    assert {"LICENSE", *PACKAGES} <= set(copied)
    for source in copied:
        assert _lets_in(source)
    assert _lets_in("workloads/training/loop.py")
    assert not any(map(_lets_in, ("infra", ".git/config", "workloads/training/__pycache__/loop.cpython-313.pyc")))


def test_the_trainer_is_not_root_and_may_write_its_cache() -> None:
    (user,) = _all("USER")
    (environment,) = _all("ENV")
    uid = user.split(":")[0]
    (prepare,) = (command for command in _all("RUN") if "useradd" in command)
    assert uid != "0"
    assert f"--uid {uid} " in prepare
    assert "JAX_COMPILATION_CACHE_DIR=/tmp/" in environment


def test_what_is_copied_suffices_for_the_smoke_test(tmp_path: Path) -> None:
    (smoke,) = (json.loads(command) for command in _all("RUN") if command.startswith("["))
    ran = _run(smoke, tmp_path)
    assert ran.returncode == 0
    assert "JOB_SPEC" in ran.stdout


def test_without_further_orders_it_starts_the_trainer_which_asks_for_a_job(tmp_path: Path) -> None:
    ran = _run(json.loads(*_all("CMD")), tmp_path)
    assert ran.returncode == ExitCode.INVALID_SPEC
    assert "JOB_SPEC" in ran.stderr


def _run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the image's command in a folder with the image's files."""
    assert command[0] == "python"
    for package in PACKAGES:
        (folder / package).symlink_to(ROOT / package)
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *command[1:]], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

"""Break the sources in small ways, one at a time, and check that a test fails for each.

    python -m tests.mutations [NAMES...]

Runs in a temporary copy of the checkout. `make test` does not run it: it checks the tests, not the sources.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from importlib.util import cache_from_source
from pathlib import Path
from time import monotonic
from typing import NamedTuple


class Mutation(NamedTuple):
    """One small way to break a source file."""

    name: str
    file: str
    find: str
    """Text that occurs exactly once in the file."""
    replace: str
    tests: str
    """What to pass to pytest, separated by spaces."""
    equivalent: str = ""
    """Why no test can tell the difference; empty if one must."""


TRAINING = "tests/workloads/training"

PROGRAM = (
    Mutation(
        "queues-role-before-borders",
        "infra/queues.py",
        "access.role(team.namespace), borders)",
        "access.role(team.namespace), borders[:0])",
        "tests/infra/test_program.py",
    ),
    Mutation(
        "queues-order-of-policies",
        "infra/queues.py",
        "manifest, declared[-1:]))",
        "manifest, declared[:0]))",
        "tests/infra/test_program.py",
    ),
    Mutation(
        "queues-queue-before-quota",
        "infra/queues.py",
        "opts=self._after([queue]),",
        "opts=self._after([]),",
        "tests/infra/test_program.py",
    ),
)

# Kueue's decisions, simulated by infra/admission.
ADMISSION: tuple[Mutation, ...] = ()

ALL = (*PROGRAM, *ADMISSION)


def main(names: Sequence[str]) -> int:
    """Run the mutations of these names, or all; return 1 if one survives that a test must catch."""
    chosen = [mutation for mutation in ALL if not names or mutation.name in names]
    if unknown := {*names} - {mutation.name for mutation in chosen}:
        sys.exit(f"error: no mutation is called {', '.join(sorted(unknown))}")
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        root = Path(folder)
        _copy_checkout(root)
        for mutation in chosen:
            _mutated(root, mutation)
        # A test that fails anyway would catch every mutation.
        if code := _run_tests(root, dict.fromkeys(test for mutation in chosen for test in mutation.tests.split())):
            sys.exit(f"error: the tests do not pass without a mutation (pytest: exit status {code})")
        survived = [mutation for mutation in chosen if not _is_caught(root, mutation)]
    missed = [mutation.name for mutation in survived if not mutation.equivalent]
    print(f"{len(chosen)} mutations: {len(chosen) - len(survived)} caught, {len(survived)} survived")
    if missed:
        print(f"no test catches {', '.join(missed)}")
    return int(bool(missed))


def _copy_checkout(root: Path) -> None:
    """Copy all files that git tracks or does not ignore, as they are now."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split("\0"):
        if name and Path(name).is_file():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(name, root / name, follow_symlinks=False)
    if Path(".venv").exists():
        (root / ".venv").symlink_to(Path(".venv").resolve())


def _mutated(root: Path, mutation: Mutation) -> str:
    source = (root / mutation.file).read_text()
    if (count := source.count(mutation.find)) != 1:
        sys.exit(f"error: {mutation.name}: expected {mutation.find!r} once in {mutation.file}, found it {count} times")
    return source.replace(mutation.find, mutation.replace)


def _is_caught(root: Path, mutation: Mutation) -> bool:
    path = root / mutation.file
    source, began = path.read_text(), monotonic()
    _write(path, _mutated(root, mutation))
    code = _run_tests(root, mutation.tests.split())
    _write(path, source)
    if code not in (0, 1):
        sys.exit(f"error: {mutation.name}: the tests did not run (pytest: exit status {code})")
    verdict = "caught" if code else "survived"
    why = f" ({mutation.equivalent})" if mutation.equivalent and not code else ""
    print(f"{verdict:9}{monotonic() - began:6.1f} s  {mutation.name}{why}", flush=True)
    return bool(code)


def _write(path: Path, source: str) -> None:
    path.write_text(source)
    # Python tells bytecode to be stale by size and time of the source, which two versions may share.
    Path(cache_from_source(str(path))).unlink(missing_ok=True)


def _run_tests(root: Path, tests: Iterable[str]) -> int:
    command = (sys.executable, "-m", "pytest", "-x", "-q", *tests)
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

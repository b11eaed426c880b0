"""`multislice preflight` shows whether a stack's training jobs fit on their chips, and how long a step takes.

It compiles the jobs without running them, in a separate process, because that process loads the TPU compiler.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from infra.review.chip_tables import preflight_tables
from infra.review.review import Known, review
from infra.stack.project import CHECKOUT
from infra.stack.submission import job_specs
from workloads.preflight_result import PreflightResult, cache_folder, cached
from workloads.spec import JobSpec
from workloads.terminal import Terminal

_STOP_SECONDS = 10
_LINES_SHOWN = 12


def preflight(stack: str, form: Form, compile_cache: str | None, console: Console, compare: bool = False) -> int:
    """Print the preflight of a stack's training jobs. Return 0 if they fit, 2 if one does not fit, 1 if unknown.

    `compile_cache` is the folder or `gs://BUCKET/FOLDER` for the compiled programs. None: they are not kept. With
    `compare`, each step is also compiled with the other value of `compile`.
    """
    path = stack_file.find(stack)
    settings = stack_file.read(path)
    specs = job_specs(settings)
    if not specs:
        raise Halt(f"{path} must have a training job, because others have no step, got {', '.join(settings.jobs)}")
    # Progress goes to stderr, because another program may read the answer.
    progress = Terminal(stderr=True, highlight=False)
    folder = cache_folder(os.environ)
    found = {name: run(spec, folder, compile_cache, progress, compare) for name, spec in specs.items()}
    known = Known(at=datetime.now(UTC), preflights=found, deployed=None, workloads=None)
    reviewed = review(stack_file.stack_name(path), settings, known)
    write(reviewed.model_dump_json(indent=1), preflight_tables(reviewed), form, console)
    if any(result.unsupported for result in found.values()):
        return 1
    return 0 if all(result.fits for result in found.values()) else NEGATIVE


def run(
    spec: JobSpec, folder: Path, compile_cache: str | None, console: Console, compare: bool = False
) -> PreflightResult:
    """Return the result for a step from `folder`, or compile it into `folder`. Raise Halt if the compiler fails."""
    known = cached(spec, folder)
    compares = compare and spec.compiled_otherwise() is not None
    answered = known and known.unsupported is None and bool(known.alternative or not compares)
    if known and answered and not compile_cache:
        return known
    if not find_spec("jax"):
        raise ModuleNotFoundError("the compiler needs JAX", name="jax")
    with tempfile.TemporaryDirectory() as scratch:
        written, errors = Path(scratch) / "spec.json", Path(scratch) / "errors"
        written.write_text(spec.model_dump_json())
        cache = ["--compile-cache", compile_cache] if compile_cache else []
        other = ["--compare-compile"] if compares else []
        keep = ["--keep", str(folder.resolve())]
        command = [sys.executable, "-m", "workloads.preflight", str(written), *keep, *cache, *other]
        status = _follow(command, errors, console)
        found = cached(spec, folder)
        # The result may be from an earlier process, if this one failed to write the compiled programs, for example.
        if found is None or not (found.unsupported or status in (0, NEGATIVE)):
            last = "\n".join(errors.read_text(errors="replace").splitlines()[-_LINES_SHOWN:])
            raise Halt(f"the compiler ended with exit status {status} and without a result:\n{last}")
    return found


def _follow(command: Sequence[str], errors: Path, console: Console) -> int:
    columns = (SpinnerColumn(), TextColumn("compiling: {task.description}"), TimeElapsedColumn())
    with (
        errors.open("w") as written,
        subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=written, text=True) as process,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        task = progress.add_task("the job (1 to 8 minutes)", total=None)
        assert process.stdout
        try:
            for line in process.stdout:
                progress.update(task, description=line.strip())
                if not console.is_terminal:
                    console.print(f"compiling: {line.strip()}", soft_wrap=True)
            return process.wait()
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            process.kill()

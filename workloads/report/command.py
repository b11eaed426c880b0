"""`python -m workloads.training report`: what a run spent as tables, and all of it as one file.

Owns the command line, the search for the run and the order of the answer, also for `multislice report`.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import fsspec
from etils import epath
from rich.console import Console

from workloads.report.goodput import Goodput, goodput
from workloads.report.history import History, read_history
from workloads.report.mesh_text import counted
from workloads.report.page import page
from workloads.report.records import read_failures
from workloads.report.tables import duration, write
from workloads.spec import Spec
from workloads.terminal import Terminal, inert

_ANSWER_SECONDS = 10
DESCRIPTION = """\
Say where the time and the money of a run went, and write what became of it as one HTML file: loss, throughput, hosts,
restarts, goodput by cause, mesh.
"""


class NoReport(Exception):
    """There is nothing to report on, or nowhere to write it; the message says what to do."""


@dataclass(frozen=True)
class Asked:
    """What a report is asked for."""

    folder: str
    """Storage path of a job, or folder of one run."""
    output: str | None
    """File of the page; None: `report.html` in the run's folder."""
    as_json: bool


class Report(Spec):
    """The answer as one object."""

    job: str
    run: str
    """Its folder."""
    page: str | None
    """Where it was written, if it could be."""
    goodput: Goodput
    notes: tuple[str, ...]
    """What could not be read."""


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return report(Asked(options.folder, options.output, options.json), Terminal(highlight=False))
    except NoReport as fault:
        print(inert(str(fault)), file=sys.stderr)
        return 1


def report(asked: Asked, console: Console) -> int:
    """Print what a run spent and write its page; the exit status.

    Whoever may only read a bucket is told the figures, and that no page was written.

    Raises:
        NoReport: there is no run, it cannot be read, or its page cannot be written where it was asked for.
    """
    try:
        history = read_history(find_run(answering(asked.folder)))
    except (*faults_of_storage(), ImportError) as fault:
        raise NoReport(
            f"{asked.folder}: expected files that can be read, got {type(fault).__name__}: {fault}; look at the name,"
            " the network and, for gs://, `gcloud auth application-default login`"
        ) from None
    spent = goodput(history.tried)
    if not asked.as_json:
        write(spent, console)
        starts = counted(len(history.tried), "start")
        console.out(f"goodput {100 * spent.productive:.1f} % of {duration(spent.seconds)} in {starts}")
    target = epath.Path(asked.output) if asked.output else history.folder / "report.html"
    fault = _write_page(history, target)
    if asked.as_json:
        console.out(_object(history, spent, None if fault else target).model_dump_json(indent=1))
    elif not fault:
        console.out(f"page: {target}")
    if fault and asked.output:
        raise NoReport(fault)
    if fault:
        print(inert(str(fault)), file=sys.stderr)
    return 0


def _write_page(history: History, target: epath.Path) -> str | None:
    """Why the page could not be written, if it could not."""
    try:
        target.write_text(page(history))
    except faults_of_storage() as fault:
        got = f"{type(fault).__name__}: {fault}"
        return f"{target}: expected to write the page there, got {got}; choose --output FILE"
    return None


def answering(folder: str) -> epath.Path:
    """Return the path of a folder, once the storage that it lies in has answered.

    Raises:
        TimeoutError: it does not answer; gcsfs alone would try for a minute.
    """
    # gcsfs logs each try that fails, with its traceback; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    place = epath.Path(folder)
    if folder.startswith("gs://"):
        # Its import takes seconds of its own, and fails beside some versions of Pulumi's plugins.
        fsspec.get_filesystem_class("gcs")
        asked = Thread(target=_ask, args=(place,), daemon=True)
        asked.start()
        asked.join(_ANSWER_SECONDS)
        if asked.is_alive():
            raise TimeoutError(f"no answer of Cloud Storage within {_ANSWER_SECONDS} s")
    return place


def _ask(place: epath.Path) -> None:
    # What fails at once does so again where it is caught.
    with suppress(Exception):
        place.exists()


def faults_of_storage() -> tuple[type[Exception], ...]:
    """What reading or writing a path raises that cannot be reached or may not be touched."""
    # Not imported: whoever raises one has loaded its module, and to load Google's clients beside Pulumi fails, since
    # both bring the protocol buffers of google.rpc.
    kinds = (("gcsfs.retry", "HttpError"), ("google.auth.exceptions", "GoogleAuthError"))
    return OSError, *(getattr(sys.modules[module], name) for module, name in kinds if module in sys.modules)


def _object(history: History, spent: Goodput, target: epath.Path | None) -> Report:
    written = str(target) if target else None
    return Report(job=history.job, run=str(history.folder), page=written, goodput=spent, notes=history.notes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads.training report", description=DESCRIPTION)
    parser.add_argument(
        "folder",
        help="storage path of the job, a local folder or gs://BUCKET/JOB, for its current run; or one run's folder",
    )
    parser.add_argument("--output", metavar="FILE", help="instead of report.html in the run's folder")
    parser.add_argument("--json", action="store_true", help="time and dollars as one JSON object")
    return parser


def find_run(folder: epath.Path) -> epath.Path:
    """The run that `folder` is or holds.

    Raises:
        NoReport: there is none; the message says what there is.
    """
    if (folder / "manifest.json").exists() or (folder / "ledger").exists():
        return folder
    runs = folder / "runs"
    names = sorted(path.name for path in runs.iterdir()) if runs.exists() else []
    current = _word(folder / "current.json", "run")
    if current in names:
        return runs / current
    if len(names) == 1:
        return runs / names[0]
    expected = "expected a storage path with runs/ and current.json, or the folder of one run"
    got = f"got runs {', '.join(names)} and no current one; name one of them" if names else "found no run"
    raise NoReport(f"{folder}: {expected}, {got}{_failures(folder)}")


def _failures(folder: epath.Path) -> str:
    """What kept a job from opening a run."""
    found = read_failures(folder, [])
    return f"; its last failure: {found[-1].failure.cause}" if found else ""


def _word(path: epath.Path, key: str) -> str:
    """What a file says of `key`; empty if it says nothing."""
    try:
        content: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError, RecursionError):
        return ""
    return str(content.get(key, "")) if isinstance(content, dict) else ""

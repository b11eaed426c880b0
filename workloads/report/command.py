"""Implements `python -m workloads.training report` and `multislice report`.

The command prints what a run spent as tables and writes the full report to one file.
"""

import argparse
import json
import logging
import math
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from threading import Thread

import fsspec
from etils import epath
from rich.console import Console

from multislice_run.records.lines import Current, parse
from multislice_run.records.reader import read_failures
from workloads.report.goodput import Goodput, goodput, lost_steps
from workloads.report.history import AttemptHistory, History, read_history
from workloads.report.mesh_text import counted
from workloads.report.page import page
from workloads.report.tables import duration, write
from workloads.spec import Spec
from workloads.terminal import Terminal, inert

_ANSWER_SECONDS = 10
_MIN_REFRESH_SECONDS = 5
_REFRESH_FACTOR = 10
"""A watched page is written again after this many times the time that reading the files took."""
DESCRIPTION = """\
Show where the time and the money of a run went, and write a report as one HTML file: loss, throughput, hosts, restarts,
goodput by cause, mesh.
"""


class NoReport(Exception):
    """Raised when there is no run to report on, or the page cannot be written. The message says what to do."""


@dataclass(frozen=True)
class Asked:
    """Options of a report."""

    folder: str
    """Storage path of a job, or the folder of one run."""
    output: str | None
    """File of the page. `None` means `report.html` in the run's folder."""
    as_json: bool
    watch: bool = False
    """Whether to write the page again every few seconds until the job has ended, for a browser that shows it."""


class Report(Spec):
    """The report as one object."""

    job: str
    run: str
    """Folder of the run."""
    page: str | None
    """File of the page. `None` if it could not be written."""
    goodput: Goodput
    notes: tuple[str, ...]
    """Names of what could not be read, with the reasons."""


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        return report(Asked(options.folder, options.output, options.json, options.watch), Terminal(highlight=False))
    except NoReport as fault:
        print(inert(str(fault)), file=sys.stderr)
        return 1


def report(asked: Asked, console: Console) -> int:
    """Print what a run spent, write its page and return the exit code.

    Without permission to write to the bucket, the command still prints the figures, and says that it wrote no page.

    Raises:
        NoReport: there is no run, it cannot be read, or its page cannot be written to `asked.output`.
    """
    # Progress goes to stderr, because another program may read the answer.
    with Terminal(stderr=True).status(f"reading the records in {asked.folder}"):
        history = _read(asked.folder)
    if asked.watch:
        history = _watch(asked, history)
    spent = goodput(history.attempts)
    if not asked.as_json:
        write(spent, console)
        for line in from_memory(history.starts):
            console.out(line)
        starts = counted(len(history.attempts), "attempt")
        console.out(f"goodput {100 * spent.productive:.1f} % of {duration(spent.seconds)} in {starts}")
    target = _target(asked, history)
    unwritten = _write_page(target, history)
    if asked.as_json:
        written = None if unwritten else str(target)
        found = Report(job=history.job, run=str(history.folder), page=written, goodput=spent, notes=history.notes)
        console.out(found.model_dump_json(indent=1))
    elif not unwritten:
        console.out(f"page: {target}")
    if unwritten and asked.output:
        raise NoReport(unwritten)
    if unwritten:
        print(inert(unwritten), file=sys.stderr)
    return 0


def _read(folder: str) -> History:
    """Return the history of the run in `folder`. Raise NoReport if it cannot be read."""
    try:
        return read_history(find_run(answering(folder)))
    except faults_of_storage() as fault:
        raise NoReport(
            f"{folder}: expected readable files, got {type(fault).__name__}: {fault}; check the name, the network"
            " and, for gs://, `gcloud auth application-default login`"
        ) from None


def _target(asked: Asked, history: History) -> epath.Path:
    """Return the file of the page. A watched page is local, because a browser has to show it."""
    if asked.output:
        return epath.Path(asked.output)
    local = asked.watch and asked.folder.startswith("gs://")
    return (epath.Path() if local else history.folder) / "report.html"


def _write_page(target: epath.Path, history: History, refresh_seconds: int | None = None) -> str:
    """Write the page. Return an error message, which is empty on success."""
    try:
        target.write_text(page(history, refresh_seconds))
    except faults_of_storage() as fault:
        got = f"{type(fault).__name__}: {fault}"
        return f"{target}: expected to write the page there, got {got}; choose --output FILE"
    return ""


def _watch(asked: Asked, history: History) -> History:
    """Write the page again and again until the job has ended or the user stops. Return the last history.

    Raises:
        NoReport: the page cannot be written.
    """
    pause, target = _MIN_REFRESH_SECONDS, _target(asked, history)
    print(
        inert(f"{target} follows the run in {asked.folder}; open it in a browser. Press Ctrl-C to stop"),
        file=sys.stderr,
    )
    try:
        while not history.over:
            if unwritten := _write_page(target, history, pause):
                raise NoReport(unwritten)
            time.sleep(pause)
            began = time.monotonic()
            try:
                history = _read(asked.folder)
            except NoReport as fault:
                print(inert(str(fault)), file=sys.stderr)
            # Reading a bucket is slow.
            pause = max(_MIN_REFRESH_SECONDS, math.ceil(_REFRESH_FACTOR * (time.monotonic() - began)))
    except KeyboardInterrupt:
        print("stopped; the job continues", file=sys.stderr)
    return history


def from_memory(starts: Sequence[AttemptHistory]) -> Iterator[str]:
    """Yield a sentence about each attempt that continued from the memory of the pods."""
    lost = lost_steps(starts)
    for before, start in pairwise(starts):
        if event := start.restored_locally:
            repeated = counted(sum(number == before.number for number, _ in lost), "step")
            yield (
                f"attempt {start.number + 1} continued from the memory of the pods at step {event.facts['step']}:"
                f" {repeated} repeated; the newest checkpoint was of step {event.facts['saved']}"
            )


def answering(folder: str) -> epath.Path:
    """Return the path of a folder after its storage has answered.

    Raises:
        TimeoutError: the storage does not answer within 10 seconds. gcsfs itself would retry for a minute.
    """
    # gcsfs logs each failed try with its traceback. The final failure is raised anyway.
    logging.getLogger("gcsfs").setLevel(logging.CRITICAL)
    place = epath.Path(folder)
    if folder.startswith("gs://"):
        # Importing gcsfs takes seconds, which are not part of the answer.
        fsspec.get_filesystem_class("gcs")
        probe = Thread(target=_probe, args=(place,), daemon=True)
        probe.start()
        probe.join(_ANSWER_SECONDS)
        if probe.is_alive():
            raise TimeoutError(f"no answer from Cloud Storage within {_ANSWER_SECONDS} s")
    return place


def _probe(place: epath.Path) -> None:
    # An error here occurs again when the caller reads, and is handled there.
    with suppress(Exception):
        place.exists()


def faults_of_storage() -> tuple[type[Exception], ...]:
    """Return the exceptions of reading or writing a path that is unreachable or not permitted."""
    # An exception can only come from a loaded module, and loading Google's clients takes seconds.
    kinds = (("gcsfs.retry", "HttpError"), ("google.auth.exceptions", "GoogleAuthError"))
    return OSError, *(getattr(sys.modules[module], name) for module, name in kinds if module in sys.modules)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads.training report", description=DESCRIPTION)
    parser.add_argument(
        "folder",
        help="storage path of the job, a local folder or gs://BUCKET/JOB, for its current run, or folder of one run",
    )
    parser.add_argument(
        "--output", metavar="FILE", help="file to write the page to (default: report.html in the run's folder)"
    )
    parser.add_argument("--watch", action="store_true", help="write the page every few seconds until the job has ended")
    parser.add_argument("--json", action="store_true", help="print time and dollars as one JSON object")
    return parser


def find_run(folder: epath.Path, name: str | None = None) -> epath.Path:
    """Return the folder of the run that `folder` is or contains. `name` is that of the run. `None`: the current one.

    Raises:
        NoReport: there is no run, or the current one is unknown. The message lists what was found.
    """
    if name is not None:
        if not (folder / "runs" / name).exists():
            raise NoReport(f"{folder}: expected the run {name}, which has not begun")
        return folder / "runs" / name
    if (folder / "manifest.json").exists() or (folder / "ledger").exists():
        return folder
    runs = folder / "runs"
    names = sorted(path.name for path in runs.iterdir()) if runs.exists() else []
    try:
        current = parse(Current, json.loads((folder / "current.json").read_bytes())).run
    except (FileNotFoundError, ValueError, RecursionError):
        current = ""
    if current in names:
        return runs / current
    if len(names) == 1:
        return runs / names[0]
    expected = "expected a storage path with runs/ and current.json, or the folder of one run"
    got = f"got runs {', '.join(names)} and no current one; name one of them" if names else "found no run"
    failures = read_failures(folder, [])
    last = f"; its last failure: {failures[-1].failure.cause}" if failures else ""
    raise NoReport(f"{folder}: {expected}, {got}{last}")

"""`python -m workloads.training report`: the report of one run, as a file.

Owns the command line and the search for the run.
"""

import argparse
import json
import logging
import sys
from collections.abc import Sequence

from etils import epath

from workloads.report.goodput import goodput
from workloads.report.history import read_history
from workloads.report.mesh_text import counted
from workloads.report.page import duration, page

DESCRIPTION = "Write what became of a run as one HTML file: loss, throughput, hosts, restarts, goodput by cause, mesh."


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    options = _parser().parse_args(arguments)
    # gcsfs warns at every call that it found no default credentials; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        run = find_run(epath.Path(options.folder))
    except FileNotFoundError as fault:
        print(fault, file=sys.stderr)
        return 1
    history = read_history(run)
    target = epath.Path(options.output) if options.output else run / "report.html"
    target.write_text(page(history))
    spent = goodput(history.starts)
    starts = counted(len(history.starts), "start")
    print(f"goodput {100 * spent.productive:.1f} % of {duration(spent.seconds)} in {starts}: {target}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m workloads.training report", description=DESCRIPTION)
    parser.add_argument(
        "folder",
        help="storage path of the job, a local folder or gs://BUCKET/JOB, for its current run; or one run's folder",
    )
    parser.add_argument("--output", metavar="FILE", help="instead of report.html in the run's folder")
    return parser


def find_run(folder: epath.Path) -> epath.Path:
    """The run that `folder` is or holds.

    Raises:
        FileNotFoundError: there is none; the message says what there is.
    """
    if (folder / "manifest.json").exists() or (folder / "ledger").exists():
        return folder
    runs = folder / "runs"
    names = sorted(path.name for path in runs.iterdir()) if runs.exists() else []
    current = folder / "current.json"
    if current.exists() and (run := json.loads(current.read_text())["run"]) in names:
        return runs / run
    if len(names) == 1:
        return runs / names[0]
    expected = "expected a storage path with runs/ and current.json, or the folder of one run"
    got = f"got runs {', '.join(names)} and no current one; name one of them" if names else "found no run"
    raise FileNotFoundError(f"{folder}: {expected}, {got}{_failures(folder)}")


def _failures(folder: epath.Path) -> str:
    """What kept a job from opening a run."""
    records = sorted((folder / "failures").glob("*/*.json")) if (folder / "failures").exists() else []
    if not records:
        return ""
    return f"; its last failure: {json.loads(records[-1].read_text())['cause']}"

"""`multislice profile` requests a profile of some steps of a running job, waits for all hosts, and downloads it.

The request and the profiles are files in the folder of the job's run. See `workloads.training.profile`.
"""

import re
import sys
import time
from collections.abc import Collection, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from etils import epath
from rich.console import Console

from cli.answer import NEGATIVE, Halt, write_short
from cli.deployed import Deployed
from cli.observed.observe import Observer, folder_of
from cli.observed.snapshot import JobStatus, Snapshot
from cli.sandbox_folder import find_sandbox
from infra.cluster.job_state import Kind, State
from workloads.call.folder import gcs
from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.spec import PROFILE_REQUEST, PROFILES, XPROF_FOLDER

_POLL_SECONDS = 2.0
_NAME = re.compile(r"\d+-\d+-\d+")
"""Pattern of the names of captures. Other tools use other names."""
_TRACE = ".xplane.pb"
"""Suffix of the files that XProf reads, one per host."""


@dataclass(frozen=True)
class Capture:
    """Profiles of the same steps on all hosts."""

    name: str
    """`<start>-<first step>-<last step>`."""
    sizes: dict[str, int]
    """Size of each file in bytes, by name."""

    @property
    def hosts(self) -> int:
        """Number of hosts whose trace exists."""
        return sum(name.endswith(_TRACE) for name in self.sizes)

    @property
    def steps(self) -> tuple[int, int]:
        _, first, last = map(int, self.name.split("-"))
        return first, last


def profile(
    deployed: Deployed, name: str | None, output: Path | None, wait_seconds: float, console: Console, *, as_json: bool
) -> int:
    """Profile some steps of a job and download the result to `output`, by default `profile-JOB`.

    Return the exit status. Raise Halt if the job is not training, or the profile does not arrive in time.
    """
    observer = Observer(deployed)
    snapshot, job = observer.job(name)
    if job.kind is not Kind.TRAINING:
        raise Halt(f"expected a training job, but {job.ref.name} runs another program; nothing was profiled", NEGATIVE)
    _require_running(job)
    target = epath.Path(output or f"profile-{job.ref.name}")
    try:
        run = find_run(answering(folder_of(deployed, job) or deployed.job_folder(job.ref)), job.run)
        before = captures(run)
        with _request(deployed, run):
            sys.stderr.write(f"job {job.ref.name}: its {job.hosts} hosts will profile the same steps within 10 s\n")
            found = _awaited(observer, snapshot, job, run, before, wait_seconds)
        source, copy = (folder / XPROF_FOLDER / found.name for folder in (run / PROFILES, target))
        copy.mkdir(parents=True, exist_ok=True)
        for file in found.sizes:
            (copy / file).write_bytes((source / file).read_bytes())
    except NoReport as fault:
        raise Halt(f"{fault}; only a job that is training can be profiled", NEGATIVE) from None
    except (ImportError, *faults_of_storage()) as fault:
        raise Halt(
            f"cannot read and write the files of job {job.ref.name}, or cannot write {target}: {fault}"
        ) from None
    size = sum(found.sizes.values())
    figures = {"steps": found.steps, "hosts": found.hosts, "size_bytes": size}
    answer = {"job": job.ref.name, **figures, "folder": str(copy)} if as_json else None
    lines = (f"{size / 1e6:.1f} MB in {copy}", f"look at it: xprof --logdir {target}")
    verdict = f"steps {found.steps[0]} to {found.steps[1]} of {found.hosts} hosts"
    write_short(answer, f"job {job.ref.name}", verdict, lines, console)
    return 0


def captures(run: epath.Path) -> dict[str, Capture]:
    """Return the captures of a run, by name."""
    folder = run / PROFILES / XPROF_FOLDER
    if not folder.exists():
        return {}
    return {
        each.name: Capture(each.name, {path.name: path.stat().length for path in each.iterdir()})
        for each in folder.iterdir()
        if _NAME.fullmatch(each.name)
    }


@contextmanager
def _request(deployed: Deployed, run: epath.Path) -> Generator[None]:
    """Write the request into the run's folder, and remove it at the end in case the job has not seen it."""
    if deployed.sandbox is None:
        request = run / PROFILE_REQUEST
        request.parent.mkdir(exist_ok=True)
        request.write_text("")
        try:
            yield
        finally:
            request.unlink(missing_ok=True)
        return
    # The sandbox's GCS server does not notice files that other processes write into its folder.
    site = find_sandbox(deployed.sandbox, deployed.stack)
    bucket = gcs(**site.storage.options)
    path = f"{Path(run).relative_to(site.buckets)}/{PROFILE_REQUEST}"
    bucket.pipe_file(path, b"")
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            bucket.rm_file(path)


def _awaited(
    observer: Observer,
    snapshot: Snapshot,
    job: JobStatus,
    run: epath.Path,
    before: Collection[str],
    wait_seconds: float,
) -> Capture:
    """Return the new capture as soon as all hosts have written their files and the files no longer grow.

    Raise Halt if the job stops, or the capture does not arrive in time.
    """
    seen: Capture | None = None
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() <= deadline:
        found = next((each for name, each in captures(run).items() if name not in before), None)
        if found and found == seen and found.hosts >= job.hosts:
            return found
        seen = found
        snapshot, job = observer.again(snapshot, job)
        _require_running(job)
        time.sleep(min(_POLL_SECONDS, wait_seconds))
    raise Halt(
        f"expected profiles of {job.hosts} hosts within {wait_seconds:.0f} s, got {seen.hosts if seen else 0}; the"
        f" steps may take longer: increase --wait, or check {run}/profiles later"
    )


def _require_running(job: JobStatus) -> None:
    if job.state is not State.RUNNING:
        raise Halt(f"expected a running job, but {job.ref.name} is {job.state}; nothing was profiled", NEGATIVE)

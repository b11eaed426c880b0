"""`multislice profile`: ask a running job for a profile of some steps, wait for all hosts, and download it.

The request is a file in the folder of the job's run, and so are the profiles: see `workloads.training.profile`.
"""

import re
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from etils import epath
from rich.console import Console

from cli.answer import write_short
from cli.cancel import REFUSED
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.observe import Observer
from cli.observed.snapshot import Job, Snapshot
from cli.sandbox_folder import existing
from infra.job_state import Kind, State
from workloads.call.folder import gcs
from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.spec import PROFILE_REQUEST, PROFILES, XPROF_FOLDER, Spec

_POLL_SECONDS = 2.0
_NAME = re.compile(r"\d+-\d+-\d+")
"""Name of a capture; other tools name theirs differently."""
_TRACE = ".xplane.pb"
"""End of the name of the file that XProf reads, one for each host."""


@dataclass(frozen=True)
class Capture:
    """One capture: the same steps on all hosts."""

    name: str
    """`<start>-<first step>-<last step>`."""
    sizes: dict[str, int]
    """Bytes of each file, by its name."""

    @property
    def hosts(self) -> int:
        """Number of hosts whose trace is there."""
        return sum(name.endswith(_TRACE) for name in self.sizes)

    @property
    def steps(self) -> tuple[int, int]:
        """First and last step."""
        _, first, last = map(int, self.name.split("-"))
        return first, last


class Profiled(Spec):
    """What was recorded."""

    job: str
    steps: tuple[int, int]
    """First and last step."""
    hosts: int
    size_bytes: int
    folder: str
    """Where XProf finds it, on this machine."""


def profile(
    deployed: Deployed, name: str | None, output: Path | None, wait_seconds: float, console: Console, *, as_json: bool
) -> int:
    """Record some steps of a job and download them to `output`, by default `profile-JOB`; return the exit status.

    Raises:
        Halt: the job does not train, its files cannot be read or written, or the profile does not come in time.
    """
    observer = Observer(deployed)
    snapshot, job = observer.job(name)
    if job.kind is not Kind.TRAINING:
        raise Halt(f"expected a training job, but {job.place.name} runs another program; nothing was recorded", REFUSED)
    _require_running(job)
    target = epath.Path(output or f"profile-{job.place.name}")
    try:
        run = find_run(answering(deployed.job_folder(job.place)))
        before = captures(run)
        with _request(deployed, run):
            sys.stderr.write(f"asked job {job.place.name}: its {job.hosts} hosts record the same steps within 10 s\n")
            found = _awaited(observer, snapshot, job, run, before, wait_seconds)
        copy = download(run, found, target)
    except NoReport as fault:
        raise Halt(f"{fault}; a profile takes a job that trains", REFUSED) from None
    except (ImportError, *faults_of_storage()) as fault:
        raise Halt(
            f"expected to read and write the files of job {job.place.name}, and to write {target}, got: {fault}"
        ) from None
    size = sum(found.sizes.values())
    profiled = Profiled(job=job.place.name, steps=found.steps, hosts=found.hosts, size_bytes=size, folder=str(copy))
    lines = (f"{size / 1e6:.1f} MB in {copy}", f"look at it: xprof --logdir {target}")
    verdict = f"steps {found.steps[0]} to {found.steps[1]} of {found.hosts} hosts"
    write_short(profiled.model_dump_json(indent=1) if as_json else None, f"job {profiled.job}", verdict, lines, console)
    return 0


def captures(run: epath.Path) -> dict[str, Capture]:
    """Return the captures of a run, by name."""
    folder = run / PROFILES / XPROF_FOLDER
    if not folder.exists():
        return {}
    return {each.name: Capture(each.name, _sizes(each)) for each in folder.iterdir() if _NAME.fullmatch(each.name)}


def download(run: epath.Path, capture: Capture, target: epath.Path) -> epath.Path:
    """Copy a capture to where XProf finds it below `target`; return its folder there."""
    source = run / PROFILES / XPROF_FOLDER / capture.name
    copy = target / XPROF_FOLDER / capture.name
    copy.mkdir(parents=True, exist_ok=True)
    for name in capture.sizes:
        (copy / name).write_bytes((source / name).read_bytes())
    return copy


@contextmanager
def _request(deployed: Deployed, run: epath.Path) -> Generator[None]:
    """Leave the request in the run's folder; at the end it is removed, in case the job has not seen it."""
    if deployed.sandbox is None:
        (run / PROFILE_REQUEST).parent.mkdir(exist_ok=True)
        (run / PROFILE_REQUEST).write_text("")
        try:
            yield
        finally:
            (run / PROFILE_REQUEST).unlink(missing_ok=True)
        return
    # The sandbox's GCS server does not see what is written to its folder by others.
    site = existing(deployed.sandbox)
    bucket = gcs(**site.gcs_options)
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
    job: Job,
    run: epath.Path,
    before: Mapping[str, Capture],
    wait_seconds: float,
) -> Capture:
    """Return the new capture once all hosts have left their files and none of them grows.

    Raises:
        Halt: the job has stopped, or the capture does not come in time.
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
        f"expected profiles of {job.hosts} hosts within {wait_seconds:.0f} s, got {seen.hosts if seen else 0}; steps"
        f" may take longer: give --wait more seconds, or look later in {run}/profiles"
    )


def _require_running(job: Job) -> None:
    if job.state is not State.RUNNING:
        raise Halt(f"expected a job that runs, but {job.place.name} is {job.state}; nothing was recorded", REFUSED)


def _sizes(folder: epath.Path) -> dict[str, int]:
    return {path.name: path.stat().length for path in folder.iterdir()}

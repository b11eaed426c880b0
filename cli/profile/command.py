"""`multislice profile`: ask the leader of a running job for a profile, wait for all hosts, bring it here."""

import sys
from collections.abc import Mapping
from pathlib import Path

from etils import epath
from rich.console import Console

from cli.answer import tell
from cli.control.host import container, running_hosts
from cli.control.job import REFUSED, Job, State, asking, find, wait
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.kind import Kind, kind_of
from cli.observed.pod import leader_of
from cli.profile.captures import Capture, captures, download
from infra.remote_command import Container, NotStarted, run
from workloads.report.command import NoReport, answering, faults_of_storage, find_run
from workloads.spec import Spec

_REQUEST = ("python", "-m", "workloads.training.profile_request")
_REQUEST_SECONDS = 60.0


class Profiled(Spec):
    """What was recorded."""

    job: str
    steps: tuple[int, int]
    """First and last one."""
    hosts: int
    size_bytes: int
    folder: str
    """Where XProf finds it, on this machine."""


def profile(
    stack: Deployed, name: str | None, output: Path | None, wait_seconds: float, console: Console, *, as_json: bool
) -> int:
    """Record some steps of a job and bring them to `output`, a folder named after the job by default; exit status.

    Raises:
        Halt: the job does not train, the cluster refuses, or the profile does not come in time.
    """
    job = find(stack, name)
    place = job.place
    with asking(f"tell of job {place.name}"):
        leader = container(job, leader_of(job.jobset))
        hosts = len(running_hosts(job))
    if kind_of(job.jobset) is not Kind.TRAINING:
        raise Halt(f"expected a training job, but {place.name} runs another program; nothing was recorded", REFUSED)
    target = epath.Path(output or f"profile-{place.name}")
    try:
        folder = find_run(answering(stack.job_folder(place)))
        before = captures(folder)
        _request(job, leader)
        sys.stderr.write(f"asked job {place.name}: its {hosts} hosts record the same steps, about 3 s from now\n")
        found = _awaited(job, folder, before, hosts, wait_seconds)
        copy = download(folder, found, target)
    except NoReport as fault:
        raise Halt(f"{fault}; a profile takes a job that trains", REFUSED) from None
    except (ImportError, *faults_of_storage()) as fault:
        raise Halt(f"expected to read the files of job {place.name} and to write {target}, got: {fault}") from None
    size = sum(found.sizes.values())
    told = Profiled(job=place.name, steps=found.steps, hosts=found.hosts, size_bytes=size, folder=str(copy))
    _tell(told, target, console, as_json=as_json)
    return 0


def _request(job: Job, leader: Container) -> None:
    with asking(f"ask job {job.place.name} for a profile"):
        try:
            ended = run(job.api, leader, _REQUEST, timeout_seconds=_REQUEST_SECONDS)
        except NotStarted as fault:
            raise Halt(f"expected Python in the container of job {job.place.name}, got: {fault}") from None
    if ended.exit_code:
        raise Halt(f"job {job.place.name} was not asked: {ended.errors.decode(errors='replace').strip()}", REFUSED)


def _awaited(
    job: Job, run_folder: epath.Path, before: Mapping[str, Capture], hosts: int, wait_seconds: float
) -> Capture:
    """The capture that was not there before, once all hosts have left theirs and nothing of it grows.

    Raises:
        Halt: the job has ended, or it does not come in time.
    """
    seen: list[Capture] = []

    def whole() -> bool:
        new = [each for name, each in captures(run_folder).items() if name not in before]
        settled = bool(new) and new[:1] == seen[-1:] and new[0].hosts >= hosts
        seen.extend(new[:1])
        with asking(f"tell of job {job.place.name}"):
            now = job.now()
        if not settled and (now is None or now.state is not State.RUNNING):
            raise Halt(f"job {job.place.name} has stopped before all its hosts had recorded the steps", REFUSED)
        return settled

    if not wait(whole, wait_seconds):
        there = seen[-1].hosts if seen else 0
        raise Halt(
            f"expected profiles of {hosts} hosts within {wait_seconds:.0f} s, got {there}; steps may take longer:"
            f" give --wait more seconds, or look later in {run_folder}/profiles"
        )
    return seen[-1]


def _tell(told: Profiled, target: epath.Path, console: Console, *, as_json: bool) -> None:
    verdict = f"steps {told.steps[0]} to {told.steps[1]} of {told.hosts} hosts"
    lines = (f"{told.size_bytes / 1e6:.1f} MB in {told.folder}", f"look at it: xprof --logdir {target}")
    json = told.model_dump_json(indent=1) if as_json else None
    tell(json, f"job {told.job}", verdict, lines, console)

"""`multislice report` shows how a job's run spent its time and money."""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.sandbox_folder import find_sandbox
from infra.stack.names import jobs_folder
from workloads.report.command import Asked, NoReport, answering, faults_of_storage
from workloads.report.command import report as reported


def report(asked: Asked, console: Console) -> int:
    """Print what a run spent and write its page. Return the exit status."""
    try:
        return reported(asked, console)
    except NoReport as error:
        raise Halt(str(error)) from None


def is_folder(target: str, stack: str | None, *, by_kubeconfig: bool = False) -> bool:
    """Return whether `target` is a path. Otherwise it is the name of a job, in a cluster possibly NAMESPACE/JOB."""
    if by_kubeconfig:
        return target.startswith("gs://") or ("/" in target and Path(target).exists())
    return "/" in target or (not stack and Path(target).exists())


def folder(job: str | None, stack: str, sandbox: Path | None) -> str:
    """Return the folder of a stack's job or of one that was submitted to it; of its only training job if `job` is None.

    `sandbox` is the folder of the sandbox that has the stack. None: the stack is in Google Cloud. Raise Halt unless it
    is one job.
    """
    settings = stack_file.read(stack_file.find(stack))
    jobs = [job] if job else list(settings.recorded_jobs)
    if len(jobs) != 1:
        raise Halt(f"expected the name of one job with a report, because stack {stack} has {', '.join(jobs) or 'none'}")
    (name,) = jobs
    files = settings.checkpoint_bucket
    bucket = f"gs://{files}" if sandbox is None else str(find_sandbox(sandbox, stack).buckets / files)
    own = f"{bucket}/{name}"
    if name in settings.jobs:
        return own
    found = _existing(f"{bucket}/{jobs_folder(team.namespace)}/{name}" for team in settings.teams.values())
    if len(found) > 1:
        raise Halt(
            f"expected the name of one job, because several teams have a {name}; write one of {', '.join(found)}"
        )
    return found[0] if found else own


def _existing(places: Iterable[str]) -> list[str]:
    found: list[str] = []
    for place in places:
        try:
            found += [place] * answering(place).exists()
        except TimeoutError:
            # The others would not be answered either, and the report says so.
            break
        except faults_of_storage():
            continue
    return found

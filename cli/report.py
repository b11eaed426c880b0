"""`multislice report`: where the time and the money of a job's run went.

Owns which folder is meant by a job's name; what is read and told is the business of `workloads.report`.
"""

from collections.abc import Iterable
from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.halt import Halt
from cli.sandbox_folder import existing
from workloads.report.command import Asked, NoReport
from workloads.report.command import report as reported


def report(asked: Asked, console: Console) -> int:
    """Print what a run spent and write its page; the exit status.

    Raises:
        Halt: there is no run, or its page cannot be written.
    """
    try:
        return reported(asked, console)
    except NoReport as fault:
        raise Halt(str(fault)) from None


def folder(target: str | None, stack: str | None, sandbox: Path | None) -> str:
    """The folder that `target` names: itself, or where the stack keeps the files of the job of that name.

    `sandbox` is the folder of the one that the stack stands in; None: in Google Cloud.

    Raises:
        Halt: it takes a stack, or a sandbox, to know; or the stack has several jobs, and none is named.
    """
    if target and (stack is None or "/" in target):
        return target
    if stack is None:
        raise Halt(
            "report takes a folder, gs://BUCKET/JOB or --stack STACK for that stack's job, got none of them; name one"
        )
    settings = stack_file.read(stack_file.find(stack))
    job = target or _only_job(settings.training_jobs, stack)
    if sandbox is None:
        return f"gs://{settings.checkpoint_bucket}/{job}"
    return str(existing(sandbox).buckets / settings.checkpoint_bucket / job)


def _only_job(jobs: Iterable[str], stack: str) -> str:
    names = list(jobs)
    if len(names) != 1:
        raise Halt(
            f"report takes the name of a training job, since stack {stack} has {', '.join(names) or 'none'}; name one"
        )
    return names[0]

"""`multislice report` shows how a job's run spent its time and money."""

from pathlib import Path

from rich.console import Console

from cli import stack_file
from cli.answer import Halt
from cli.sandbox_folder import find_sandbox
from workloads.report.command import Asked, NoReport
from workloads.report.command import report as reported


def report(asked: Asked, console: Console) -> int:
    """Print what a run spent and write its page. Return the exit status."""
    try:
        return reported(asked, console)
    except NoReport as error:
        raise Halt(str(error)) from None


def folder(target: str | None, stack: str | None, sandbox: Path | None) -> str:
    """Return the folder of a report: `target` if it is a path, or the folder of the stack's job of that name.

    `sandbox` is the folder of the sandbox that has the stack. None: the stack is in Google Cloud. Raise Halt if a stack
    is needed, or one of its jobs.
    """
    if target and (stack is None or "/" in target):
        return target
    if stack is None:
        raise Halt("expected a folder, gs://BUCKET/JOB, or --stack STACK for the job of a stack, got none of these")
    settings = stack_file.read(stack_file.find(stack))
    jobs = [target] if target else list(settings.recorded_jobs)
    if len(jobs) != 1:
        raise Halt(f"expected the name of one job with a report, because stack {stack} has {', '.join(jobs) or 'none'}")
    if sandbox is None:
        return f"gs://{settings.checkpoint_bucket}/{jobs[0]}"
    return str(find_sandbox(sandbox).buckets / settings.checkpoint_bucket / jobs[0])

"""`multislice cancel`: the end of a job, whose checkpoints stay.

The JobSet is deleted. Pulumi's state still holds it, so `up` leaves it away as long as no setting of the job changes;
`up --refresh` finds that it is gone and makes it anew. For a pause that `up` never touches there is `suspend`.
"""

from rich.console import Console

from cli.control.agreement import agree
from cli.control.checkpoint import last_checkpoint
from cli.control.job import ENDED, REFUSED, Job, asking, find, wait
from cli.control.outcome import Outcome, tell
from cli.deployed import Deployed
from cli.halt import Halt


def cancel(stack: Deployed, name: str | None, console: Console, *, yes: bool, as_json: bool) -> int:
    """End a job and wait until its hosts have; the exit status.

    Raises:
        Halt: there is no such job, it has ended, nobody agreed, or the cluster refuses.
    """
    place = stack.job(name)
    folder = stack.job_folder(place)
    with asking(f"tell of job {place.name}"):
        job = find(stack.api, place)
    if job.state in ENDED:
        raise Halt(f"expected a job that waits or runs, but {place.name} is {job.state}; nothing was changed", REFUSED)
    agree(f"Cancel job {place.name}, which is {job.state}? {last_checkpoint(folder)}.", yes=yes)
    end(job)
    gone = (
        f"`pulumi up --stack {stack.stack}` leaves it away until a setting of the job changes",
        f"`pulumi up --refresh --stack {stack.stack}` submits it again; it goes on from its last checkpoint if its"
        " existing_run is resume",
    )
    outcome = Outcome(
        job=place.name,
        namespace=place.namespace,
        done="cancelled",
        state=None,
        checkpoint=last_checkpoint(folder),
        notes=gone,
    )
    tell(outcome, console, as_json=as_json)
    return 0


def end(job: Job) -> None:
    """Delete the JobSet and wait until it and its pods are gone.

    Raises:
        Halt: the cluster refuses, or it is not gone in time.
    """
    options = {"kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": job.uid}}
    with asking(f"delete job {job.place.name}"):
        job.api.delete(job.path, options)
        if not wait(lambda: job.now() is None, job.patience_seconds):
            raise Halt(
                f"job {job.place.name} is being deleted, but was not gone {job.patience_seconds:.0f} s later;"
                f" look at its pods: kubectl get pods -n {job.place.namespace}"
            )

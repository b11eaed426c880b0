"""`multislice cancel` ends a job and keeps its checkpoints.

It deletes the JobSet. Pulumi's state still has it, so `up` does not submit it again until a setting of the job
changes. To stop a job for a while, set `paused` in the stack file instead.
"""

import time
from dataclasses import replace

from rich.console import Console

from cli.answer import NEGATIVE, Halt, agree, write_short
from cli.deployed import Deployed
from cli.explain.finding import submit_again
from cli.observed.files import read_files
from cli.observed.observe import Observer, folder_of
from cli.observed.snapshot import JobStatus
from infra.cluster.kubernetes import UNREACHABLE, ApiError
from infra.stack.names import JOBSETS
from infra.stack.settings.jobs import MAX_GRACE_SECONDS

_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = MAX_GRACE_SECONDS + 60.0
"""The hosts of a job may use their whole grace period to save. The rest is for the controllers."""


def cancel(deployed: Deployed, name: str | None, console: Console, *, yes: bool, as_json: bool) -> int:
    """Cancel a job and wait until its hosts have ended. Raise Halt if it has ended, or the user does not confirm."""
    _, job = Observer(deployed).job(name)
    ref = job.ref
    if job.state.is_end:
        raise Halt(f"expected a waiting or running job, but {ref.name} is {job.state}; nothing was changed", NEGATIVE)
    if not yes:
        agree(f"Cancel job {ref.name}, which is {job.state}? {_last_checkpoint(job)}.")
    _end(deployed, job)
    folder = folder_of(deployed, job)
    job = replace(job, files=read_files(folder, job.run, job.uid)) if folder else job
    again = f"submit it again: {submit_again(deployed.reader, job)}"
    notes = (_last_checkpoint(job), *((again,) if job.declared else ()))
    # The step is null if there is no checkpoint, or it cannot be read.
    step = job.training.checkpoint_step
    answer = {"job": ref.name, "namespace": ref.namespace, "checkpoint_step": step, "notes": notes}
    write_short(answer if as_json else None, f"job {ref.name}", "cancelled", notes, console)
    return 0


def _last_checkpoint(job: JobStatus) -> str:
    step = job.training.checkpoint_step
    if step is not None:
        return f"its last checkpoint is step {step}"
    return "; ".join(job.files.notes) or "it has saved no checkpoint"


def _end(deployed: Deployed, job: JobStatus) -> None:
    path = f"{JOBSETS.format(job.ref.namespace)}/{job.ref.name}"
    options = {"kind": "DeleteOptions", "propagationPolicy": "Foreground", "preconditions": {"uid": job.uid}}
    try:
        deployed.api.delete(path, options)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while (found := deployed.api.find(path)) and found["metadata"]["uid"] == job.uid:
            if time.monotonic() > deadline:
                raise Halt(
                    f"job {job.ref.name} is being deleted, but still existed after {_PATIENCE_SECONDS:.0f} s; check"
                    f" its pods: {deployed.reader.kubectl} get pods -n {job.ref.namespace}"
                )
            time.sleep(_POLL_SECONDS)
    except UNREACHABLE as error:
        forbidden = isinstance(error, ApiError) and error.status == 403
        advice = (
            "docs/explanation/security.md says what members of a team may do"
            if forbidden
            else f"find the cause: {deployed.reader.command('doctor')}"
        )
        raise Halt(f"the cluster did not delete job {job.ref.name}: {error}; {advice}") from None

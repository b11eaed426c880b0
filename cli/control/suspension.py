"""`multislice suspend` and `resume`: a job leaves its queue and comes back.

By the field `active` of its Workload: the `suspend` of a JobSet is Kueue's own and set back at once. Pulumi declares
no Workload, so `up`, with or without a refresh, leaves a suspended job suspended.
"""

from rich.console import Console

from cli.control.checkpoint import last_checkpoint
from cli.control.job import Job, State, asking, queued, wait
from cli.control.outcome import Outcome, tell
from cli.deployed import Deployed
from cli.halt import Halt
from cli.observed.objects import condition
from infra.kubernetes import Json

_ENDED = ("Succeeded", "Failed")
"""Phases of pods."""


def suspend(stack: Deployed, name: str | None, console: Console, *, as_json: bool) -> int:
    """Take a job out of its queue; if it runs, it saves and frees its chips. The exit status.

    Raises:
        Halt: there is no such job, it has ended, or the cluster refuses.
    """
    job = queued(stack, name)
    changes = job.state is not State.SUSPENDED
    if changes:
        _set_active(job, active=False)
        _wait_for_rest(job)
    outcome = Outcome(
        job=job.place.name,
        namespace=job.place.namespace,
        done="suspended" if changes else "nothing",
        state=State.SUSPENDED,
        checkpoint=last_checkpoint(stack.job_folder(job.place)),
        notes=(
            "it holds no chips",
            f"`multislice resume {job.place.name} {stack.options}` puts it back into its queue; `up` does not",
        ),
    )
    tell(outcome, console, as_json=as_json)
    return 0


def resume(stack: Deployed, name: str | None, console: Console, *, as_json: bool) -> int:
    """Put a suspended job back into its queue; the exit status.

    Raises:
        Halt: there is no such job, it has ended, or the cluster refuses.
    """
    job = queued(stack, name)
    changes = job.state is State.SUSPENDED
    if changes:
        _set_active(job, active=True)
    outcome = Outcome(
        job=job.place.name,
        namespace=job.place.namespace,
        done="resumed" if changes else "nothing",
        state=State.QUEUED if changes else job.state,
        checkpoint=last_checkpoint(stack.job_folder(job.place)) if changes else None,
        notes=_after_resume(job) if changes else (),
    )
    tell(outcome, console, as_json=as_json)
    return 0


def _set_active(job: Job, *, active: bool) -> None:
    with asking(f"{'resume' if active else 'suspend'} job {job.place.name}"):
        job.api.patch(job.workload_path, {"spec": {"active": active}})


def _wait_for_rest(job: Job) -> None:
    seconds = job.patience_seconds
    with asking(f"tell of job {job.place.name}"):
        if wait(lambda: all(map(_was_done, job.pods())), seconds):
            return
    raise Halt(
        f"job {job.place.name} was suspended, but some of its pods were still there {seconds:.0f} s later; look at"
        f" them: kubectl get pods -n {job.place.namespace}"
    )


def _was_done(pod: Json) -> bool:
    """Whether the pod is of a slice that was done before the others: it holds no chips, and nobody removes it."""
    return pod.get("status", {}).get("phase") in _ENDED and "deletionTimestamp" not in pod["metadata"]


def _after_resume(job: Job) -> tuple[str, ...]:
    """Where it is now, and who had suspended it if it was Kueue: its time was over, or its hosts never came up."""
    assert job.workload is not None
    evicted = condition(job.workload, "Evicted")
    ended_by_kueue = evicted.get("reason", "") not in ("", "Deactivated") and evicted.get("status") == "True"
    why = (f"Kueue had suspended it: {evicted['message']}",) if ended_by_kueue else ()
    return (f"it waits in queue {job.place.queue} until its chips are free", *why)

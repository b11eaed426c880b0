"""`multislice priority`: another place in the queue for a job, while it waits or runs.

By the label of its JobSet, which Kueue carries over to the Workload. It is set as whoever declared the JobSet, so that
a later `up` with another `job.priority` changes its own field and meets no conflict.
"""

from rich.console import Console

from cli.control.declared import declared, declarer
from cli.control.job import REFUSED, Job, asking, queued, wait
from cli.control.outcome import Outcome, tell
from cli.deployed import Deployed
from cli.halt import Halt
from infra.kubernetes import APPLY_PATCH, MERGE_PATCH, Json
from infra.names import KUEUE_API_VERSION, PRIORITY_LABEL

_CLASSES = f"/apis/{KUEUE_API_VERSION}/workloadpriorityclasses"
_KUEUE_SECONDS = 30.0


def priority(stack: Deployed, name: str | None, priority: str, console: Console, *, as_json: bool) -> int:
    """Give a job the priority of that name; the exit status.

    Raises:
        Halt: there is no such job or priority, the job has ended, or the cluster refuses.
    """
    job = queued(stack, name)
    value = _value(job, priority)
    before = _label(job)
    if before != priority:
        with asking(f"change the priority of job {job.place.name}"):
            _set(job, priority)
            if not wait(lambda: _known(job, value), _KUEUE_SECONDS):
                raise Halt(f"the label of job {job.place.name} was changed, but Kueue has not followed; see its log")
    notes = [f"{before or 'none'} before, {priority} ({value}) now; the queue goes by it at once"]
    if job.place in stack.jobs:
        notes.append(f"write job.priority: {priority} in the stack file too, or `pulumi up --refresh` takes it back")
    outcome = Outcome(
        job=job.place.name,
        namespace=job.place.namespace,
        done="nothing" if before == priority else "priority changed",
        state=job.state,
        notes=() if before == priority else tuple(notes),
    )
    tell(outcome, console, as_json=as_json)
    return 0


def _value(job: Job, priority: str) -> int:
    with asking("list the priorities of its queues"):
        listed: list[Json] = job.api.request("GET", _CLASSES)["items"]
    values = {each["metadata"]["name"]: each["value"] for each in listed}
    if priority not in values:
        known = ", ".join(f"{name} ({value})" for name, value in sorted(values.items(), key=lambda item: item[1]))
        raise Halt(f"expected one of the priorities {known}, got {priority!r}; nothing was changed", REFUSED)
    return values[priority]


def _label(job: Job) -> str | None:
    return job.jobset["metadata"].get("labels", {}).get(PRIORITY_LABEL)


def _set(job: Job, priority: str) -> None:
    by = declarer(job.jobset)
    if by and by.applies:
        # A label that is merely patched would no longer be the declarer's.
        changed = declared(job.jobset, by)
        labels = changed["metadata"].get("labels", {}) | {PRIORITY_LABEL: priority}
        changed["metadata"] = changed["metadata"] | {"labels": labels}
        job.api.request("PATCH", job.path, changed, {"fieldManager": by.manager}, APPLY_PATCH)
        return
    query = {"fieldManager": by.manager} if by else {}
    job.api.request("PATCH", job.path, {"metadata": {"labels": {PRIORITY_LABEL: priority}}}, query, MERGE_PATCH)


def _known(job: Job, value: int) -> bool:
    now = job.now()
    return now is None or (now.workload is not None and now.workload["spec"].get("priority") == value)

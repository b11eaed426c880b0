"""A host of a job that runs: its pod, where commands are run."""

from cli.control.job import REFUSED, Job
from cli.halt import Halt
from infra.api_server import Json
from infra.remote_command import Container

LEADER = "slice-0-0"
"""The host that prints the job's progress: slice 0, host 0 of it."""

_NAME_LABELS = (
    "jobset.sigs.k8s.io/replicatedjob-name",
    "jobset.sigs.k8s.io/job-index",
    "batch.kubernetes.io/job-completion-index",
)


def container(job: Job, host: str) -> Container:
    """The container of a host that runs.

    Raises:
        Halt: no such host runs; names those that do.
    """
    running = {host_name(pod): pod for pod in job.pods() if _runs(pod)}
    if host not in running:
        names = ", ".join(sorted(running)) or "none"
        raise Halt(
            f"expected a host of job {job.place.name} that runs ({names}), got {host!r}; the job is {job.state}",
            REFUSED,
        )
    pod = running[host]
    return Container(job.place.namespace, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])


def host_name(pod: Json) -> str:
    """`<replicated job>-<slice>-<host>`, the name of the host within its job."""
    return "-".join(pod["metadata"]["labels"][label] for label in _NAME_LABELS)


def _runs(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]

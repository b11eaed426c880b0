"""A host of a job that runs: its pod, where commands are run."""

from cli.control.job import REFUSED, Job
from cli.halt import Halt
from cli.observed.pod import host_of
from infra.kubernetes import Json
from infra.remote_command import Container


def container(job: Job, host: str) -> Container:
    """The container of a host that runs.

    Raises:
        Halt: no such host runs; names those that do.
    """
    running = running_hosts(job)
    if host not in running:
        names = ", ".join(sorted(running)) or "none"
        raise Halt(
            f"expected a host of job {job.place.name} that runs ({names}), got {host!r}; the job is {job.state}",
            REFUSED,
        )
    pod = running[host]
    return Container(job.place.namespace, pod["metadata"]["name"], pod["spec"]["containers"][0]["name"])


def running_hosts(job: Job) -> dict[str, Json]:
    """The pods that run, by the names of their hosts."""
    return {host_of(pod): pod for pod in job.pods() if _runs(pod)}


def _runs(pod: Json) -> bool:
    return pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]

"""Which job is meant by a name: one of the stack's, or one that somebody submitted by hand."""

from cli.deployed import Deployed, JobPlace
from cli.observed.objects import Object
from cli.observed.paths import JOBSETS
from infra.api_server import ApiError

_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"


def place_of(deployed: Deployed, name: str | None) -> JobPlace:
    """The stack's job of that name, None: its only one; or else the job of that name in a namespace of its teams.

    Raises:
        Halt: there is no such job, or it takes a name to know.
        urllib3.exceptions.HTTPError, OSError: the cluster does not answer.
    """
    if name is None or any(job.name == name for job in deployed.jobs):
        return deployed.job(name)
    for namespace in deployed.namespaces:
        try:
            found = deployed.api.find(f"{JOBSETS.format(namespace)}/{name}")
        except ApiError:
            continue  # A namespace that one may not look into has no job of one's own.
        if found:
            return place_in(found, namespace)
    return deployed.job(name)


def place_in(jobset: Object, namespace: str) -> JobPlace:
    """Where a JobSet is, and the queue that it names; empty if it names none."""
    metadata = jobset["metadata"]
    return JobPlace(metadata["name"], namespace, metadata.get("labels", {}).get(_QUEUE_LABEL, ""))

"""Another job of the same team, which wants all chips and does nothing with them.

Owns its rendering and its life. Beside a job NAME it is called NAME-rival.
"""

from collections.abc import Generator
from contextlib import contextmanager

from chaos.field import JOBSETS, NAMESPACE, Field
from infra.kubernetes import Json
from infra.names import JOBSET_API_VERSION, PRIORITY_LABEL, QUEUE_LABEL, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.pods import CONFINED_CONTAINER, CONFINED_POD

_HOSTS = 4
_RUNNING_SECONDS = 240


@contextmanager
def rival(field: Field, job: str) -> Generator[None]:
    """The rival of `job`, which is more urgent, has all chips inside the context unless it is removed there.

    Raises:
        NotInTime: it has not within four minutes.
    """

    def runs() -> bool:
        return [pod["status"].get("phase") for pod in field.pods(_name(job))] == _HOSTS * ["Running"]

    with asking(field, job):
        field.wait(f"{_name(job)} to run", runs, _RUNNING_SECONDS)
        yield


@contextmanager
def asking(field: Field, job: str) -> Generator[None]:
    """The rival of `job` asks for all chips inside the context."""
    field.api.request("POST", JOBSETS, _manifest(_name(job)))
    try:
        yield
    finally:
        remove_rival(field, job)


def has_pods(field: Field, job: str) -> bool:
    """Whether the rival of `job` was let in."""
    return bool(field.pods(_name(job)))


def remove_rival(field: Field, job: str) -> None:
    """Delete the rival of `job`, if it is there, and wait until its pods are gone."""
    name = _name(job)
    field.api.delete(f"{JOBSETS}/{name}", {"propagationPolicy": "Background"})
    field.wait(f"the pods of {name} to go", lambda: not field.pods(name), _RUNNING_SECONDS)


def _name(job: str) -> str:
    return f"{job}-rival"


def _manifest(name: str) -> Json:
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {TOPOLOGY_LABEL: "2x4"},
        "tolerations": [{"key": TPU_RESOURCE, "operator": "Exists"}],
        "automountServiceAccountToken": False,
        "securityContext": CONFINED_POD,
        "containers": [
            {
                "name": "idle",
                "image": "busybox",
                "command": ["sleep", "3600"],
                "securityContext": CONFINED_CONTAINER,
                "resources": {"limits": {TPU_RESOURCE: 4}},
            }
        ],
    }
    hosts = {"parallelism": _HOSTS, "completions": _HOSTS, "backoffLimit": 0, "template": {"spec": pod}}
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {QUEUE_LABEL: "research", PRIORITY_LABEL: "high"},
        },
        "spec": {"replicatedJobs": [{"name": "host", "template": {"spec": hosts}}]},
    }

"""Jobs that take chips and do nothing: JobSets of pods that sleep."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from infra.cluster.kubernetes import Json
from infra.stack.jobset import PRIORITY_LABEL
from infra.stack.names import ACCELERATOR_LABEL, JOBSET_API_VERSION, QUEUE_LABEL, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.stack.pods import CONFINED_CONTAINER, CONFINED_POD
from tests.chain.stack import JOBSETS, NAMESPACE, Chain

_HOSTS = 4
_RUNNING_SECONDS = 240


@contextmanager
def rival(chain: Chain, job: str) -> Generator[None]:
    """Run a more urgent rival of `job` on all chips inside the context. It is a job of the same team."""

    def runs() -> bool:
        return [pod["status"].get("phase") for pod in chain.pods(rival_of(job))] == _HOSTS * ["Running"]

    with asking(chain, job):
        chain.wait(f"{rival_of(job)} to run", runs, _RUNNING_SECONDS)
        yield


@contextmanager
def asking(chain: Chain, job: str) -> Generator[None]:
    """Submit the rival of `job` inside the context."""
    labels = {QUEUE_LABEL: NAMESPACE, PRIORITY_LABEL: "high"}
    chain.api.request("POST", JOBSETS, idle_jobset(rival_of(job), NAMESPACE, labels, hosts=_HOSTS))
    try:
        yield
    finally:
        remove_rival(chain, job)


def remove_rival(chain: Chain, job: str) -> None:
    """Delete the rival of `job`, if it exists, and wait until its pods are gone."""
    name = rival_of(job)
    chain.api.delete(f"{JOBSETS}/{name}", {"propagationPolicy": "Background"})
    chain.wait(f"the pods of {name} to go", lambda: not chain.pods(name), _RUNNING_SECONDS)


def rival_of(job: str) -> str:
    """Name of the rival of `job`."""
    return f"{job}-rival"


def idle_jobset(
    name: str,
    namespace: str,
    labels: Mapping[str, str],
    *,
    slices: int = 1,
    hosts: int = 1,
    seconds: int = 3600,
) -> Json:
    """Return a JobSet whose pods take the chips of all `hosts` of each of its `slices` and sleep for `seconds`."""
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {ACCELERATOR_LABEL: "tpu-v6e-slice", TOPOLOGY_LABEL: "2x4"},
        "tolerations": [{"key": TPU_RESOURCE, "operator": "Exists"}],
        "automountServiceAccountToken": False,
        "securityContext": CONFINED_POD,
        "containers": [
            {
                "name": "idle",
                "image": "busybox",
                "command": ["sleep", str(seconds)],
                "securityContext": CONFINED_CONTAINER,
                "resources": {"limits": {TPU_RESOURCE: 4}},
            }
        ],
    }
    job = {"parallelism": hosts, "completions": hosts, "backoffLimit": 0, "template": {"spec": pod}}
    return {
        "apiVersion": JOBSET_API_VERSION,
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": namespace, "labels": {**labels}},
        "spec": {"replicatedJobs": [{"name": "host", "replicas": slices, "template": {"spec": job}}]},
    }

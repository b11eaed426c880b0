"""Faults from the queue and the job's own limits: preempted, stopped, quota cut, restarts or time used up."""

import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from chaos.faults.cluster import operator_down
from chaos.faults.hosts import GONE, between_saves, preempted
from chaos.target import BETWEEN_SAVES, JOBSETS, NAMESPACE, SAVE_EVERY, STEPS, Fault, Target
from chaos.verdict import SUSPENDED, UNDISTURBED, Expected
from infra.jobset import PRIORITY_LABEL
from infra.kubernetes import Json
from infra.names import ACCELERATOR_LABEL, JOBSET_API_VERSION, QUEUE_LABEL, TOPOLOGY_LABEL, TPU_RESOURCE
from infra.pods import CONFINED_CONTAINER, CONFINED_POD
from workloads.report.history import LAST

_HOSTS = 4
_RUNNING_SECONDS = 240


@contextmanager
def rival(target: Target, job: str) -> Generator[None]:
    """Run a more urgent rival of `job` on all chips inside the context. It is a job of the same team that does nothing.

    Raises NotInTime if it does not run within four minutes.
    """

    def runs() -> bool:
        return [pod["status"].get("phase") for pod in target.pods(_name(job))] == _HOSTS * ["Running"]

    with asking(target, job):
        target.wait(f"{_name(job)} to run", runs, _RUNNING_SECONDS)
        yield


@contextmanager
def asking(target: Target, job: str) -> Generator[None]:
    """Submit the rival of `job` inside the context."""
    labels = {QUEUE_LABEL: NAMESPACE, PRIORITY_LABEL: "high"}
    target.api.request("POST", JOBSETS, idle_jobset(_name(job), NAMESPACE, labels, hosts=_HOSTS))
    try:
        yield
    finally:
        remove_rival(target, job)


def remove_rival(target: Target, job: str) -> None:
    """Delete the rival of `job`, if it exists, and wait until its pods are gone."""
    name = _name(job)
    target.api.delete(f"{JOBSETS}/{name}", {"propagationPolicy": "Background"})
    target.wait(f"the pods of {name} to go", lambda: not target.pods(name), _RUNNING_SECONDS)


def _name(job: str) -> str:
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


_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
_STAYS_SECONDS = 5
"""Seconds, ten times as long as Kueue needs to act on a change."""
_GONE_SECONDS = 90


def _stop(policy: str, during: Callable[[Target, str], None]) -> Callable[[Target, str], None]:
    """Stop the team's queue, and open it again."""

    def strike(target: Target, job: str) -> None:
        target.api.patch(_QUEUE, {"spec": {"stopPolicy": policy}})
        try:
            during(target, job)
        finally:
            target.api.patch(_QUEUE, {"spec": {"stopPolicy": "None"}})

    return strike


def _see_others_wait(target: Target, job: str) -> None:
    """Check that another job is not admitted, although it is more urgent."""
    with asking(target, job):
        time.sleep(_STAYS_SECONDS)
        target.wait("the rival to wait", lambda: not target.pods(_name(job)), 1)


def _see_evicted(target: Target, job: str) -> None:
    target.wait(f"the pods of {job} to go", lambda: not target.pods(job), _GONE_SECONDS)
    time.sleep(_STAYS_SECONDS)


def _preempt(target: Target, job: str) -> None:
    with rival(target, job):
        time.sleep(_STAYS_SECONDS)


def _cut_quota(target: Target, _: str) -> None:
    (group,) = groups = target.api.request("GET", _QUEUE)["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    (chips,) = flavor["resources"]
    half = int(chips["nominalQuota"]) // 2
    halved = {**group, "flavors": [{**flavor, "resources": [{**chips, "nominalQuota": str(half)}]}]}

    def is_exceeded() -> bool:
        (flavor,) = target.api.request("GET", _QUEUE)["status"]["flavorsUsage"]
        return sum(int(each["total"]) for each in flavor["resources"]) > half

    target.api.patch(_QUEUE, {"spec": {"resourceGroups": [halved]}})
    try:
        target.wait("more in use than the quota", is_exceeded, _STAYS_SECONDS)
        time.sleep(_STAYS_SECONDS)
    finally:
        target.api.patch(_QUEUE, {"spec": {"resourceGroups": groups}})


def _free_while_kueue_is_down(target: Target, job: str) -> None:
    with rival(target, job), operator_down(target, "kueue"):
        remove_rival(target, job)
        time.sleep(_STAYS_SECONDS)
        target.wait(f"{job} to be left in the queue", lambda: not target.pods(job), 1)


QUEUE = (
    between_saves(
        "preempted",
        "a more urgent job of the team takes the chips for a while",
        _preempt,
        replace(preempted("preempted"), condition="Preempted to accommodate a workload"),
    ),
    between_saves("queue-held", "the queue admits no further jobs", _stop("Hold", _see_others_wait), UNDISTURBED),
    between_saves(
        "queue-drained",
        "the queue is drained and opened again",
        _stop("HoldAndDrain", _see_evicted),
        preempted("queue-drained"),
    ),
    between_saves("quota-cut", "the team's quota is halved below what it uses", _cut_quota, UNDISTURBED),
    between_saves(
        "kueue-down",
        "a preempted job waits, and Kueue is down when the chips become free",
        _free_while_kueue_is_down,
        preempted("kueue-down"),
    ),
)


_DEADLINE_SECONDS = 75
_LEFT_ALONE_SECONDS = 10


def _kill_for_good(target: Target, job: str) -> None:
    target.send(signal.SIGKILL, job, "slice-1-0")
    target.wait_for_end(job)
    _require_checkpoint(target, job, SAVE_EVERY)


def _outlive_deadline(target: Target, job: str) -> None:
    """Wait until Kueue evicts the job at its deadline, and check that it is not admitted again."""
    target.wait(f"the end of the time of {job}", lambda: target.jobset(job)["spec"]["suspend"], 2 * _DEADLINE_SECONDS)
    target.wait(f"the pods of {job} to go", lambda: not target.pods(job), _DEADLINE_SECONDS)
    _require_checkpoint(target, job, max(line["step"] for line in target.steps(job)))
    time.sleep(_LEFT_ALONE_SECONDS)
    target.wait(f"{job} to stay without pods", lambda: not target.pods(job), 1)


def _require_checkpoint(target: Target, job: str, step: int) -> None:
    folder = target.run_folder(job) / "checkpoints"
    target.wait(f"a checkpoint of step {step} in {folder}", (folder / str(step)).exists, 1)


LIMITS = (
    between_saves(
        "restarts-used-up",
        "a host is killed and the job has no restart left",
        _kill_for_good,
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=GONE | {LAST},
            condition="reaching max number of restarts",
        ),
        job={"max_restarts": 0},
    ),
    Fault(
        "deadline-reached",
        "the job has held its chips for `max_hours`",
        _outlive_deadline,
        replace(
            preempted("deadline-reached"),
            terminal=SUSPENDED,
            starts=1,
            # Its learning rate falls over more steps.
            loss_tolerance=0.05,
            condition="maximum execution time",
        ),
        at_step=BETWEEN_SAVES,
        job={"max_hours": _DEADLINE_SECONDS / 3600, "training": {"steps": 50 * STEPS}},
    ),
)

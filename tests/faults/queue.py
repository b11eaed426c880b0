"""Faults from the queue and the job's own limits: preempted, stopped, quota cut, restarts or time used up."""

import signal
import time
from collections.abc import Callable
from dataclasses import replace

from tests.chain.rivals import asking, remove_rival, rival, rival_of
from tests.chain.stack import SAVE_EVERY, STEPS, Chain
from tests.faults.cluster import operator_down
from tests.faults.fault import BETWEEN_SAVES, GONE, PREEMPTED, SUSPENDED, UNDISTURBED, Expected, Fault
from tests.faults.hosts import between_saves
from workloads.report.history import LAST

_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
_STAYS_SECONDS = 5
"""Seconds, ten times as long as Kueue needs to act on a change."""
_GONE_SECONDS = 90


def _stop(policy: str, during: Callable[[Chain, str], None]) -> Callable[[Chain, str], None]:
    """Stop the team's queue, and open it again."""

    def strike(chain: Chain, job: str) -> None:
        chain.api.patch(_QUEUE, {"spec": {"stopPolicy": policy}})
        try:
            during(chain, job)
        finally:
            chain.api.patch(_QUEUE, {"spec": {"stopPolicy": "None"}})

    return strike


def _see_others_wait(chain: Chain, job: str) -> None:
    """Check that another job is not admitted, although it is more urgent."""
    with asking(chain, job):
        time.sleep(_STAYS_SECONDS)
        chain.wait("the rival to wait", lambda: not chain.pods(rival_of(job)), 1)


def _see_evicted(chain: Chain, job: str) -> None:
    chain.wait(f"the pods of {job} to go", lambda: not chain.pods(job), _GONE_SECONDS)
    time.sleep(_STAYS_SECONDS)


def _preempt(chain: Chain, job: str) -> None:
    with rival(chain, job):
        time.sleep(_STAYS_SECONDS)


def _cut_quota(chain: Chain, _: str) -> None:
    (group,) = groups = chain.api.request("GET", _QUEUE)["spec"]["resourceGroups"]
    (flavor,) = group["flavors"]
    (chips,) = flavor["resources"]
    half = int(chips["nominalQuota"]) // 2
    halved = {**group, "flavors": [{**flavor, "resources": [{**chips, "nominalQuota": str(half)}]}]}

    def is_exceeded() -> bool:
        (flavor,) = chain.api.request("GET", _QUEUE)["status"]["flavorsUsage"]
        return sum(int(each["total"]) for each in flavor["resources"]) > half

    chain.api.patch(_QUEUE, {"spec": {"resourceGroups": [halved]}})
    try:
        chain.wait("more in use than the quota", is_exceeded, _STAYS_SECONDS)
        time.sleep(_STAYS_SECONDS)
    finally:
        chain.api.patch(_QUEUE, {"spec": {"resourceGroups": groups}})


def _free_while_kueue_is_down(chain: Chain, job: str) -> None:
    with rival(chain, job), operator_down(chain, "kueue"):
        remove_rival(chain, job)
        time.sleep(_STAYS_SECONDS)
        chain.wait(f"{job} to be left in the queue", lambda: not chain.pods(job), 1)


QUEUE = (
    between_saves(
        "preempted",
        "a more urgent job of the team takes the chips for a while",
        replace(PREEMPTED, condition="Preempted to accommodate a workload"),
        _preempt,
    ),
    between_saves("queue-held", "the queue admits no further jobs", UNDISTURBED, _stop("Hold", _see_others_wait)),
    between_saves(
        "queue-drained",
        "the queue is drained and opened again",
        PREEMPTED,
        _stop("HoldAndDrain", _see_evicted),
    ),
    between_saves("quota-cut", "the team's quota is halved below what it uses", UNDISTURBED, _cut_quota),
    between_saves(
        "kueue-down",
        "a preempted job waits, and Kueue is down when the chips become free",
        PREEMPTED,
        _free_while_kueue_is_down,
    ),
)


_DEADLINE_SECONDS = 75
_LEFT_ALONE_SECONDS = 10


def _for_good(kill: Callable[[Chain, signal.Signals, str, str], None]) -> Callable[[Chain, str], None]:
    def strike(chain: Chain, job: str) -> None:
        kill(chain, signal.SIGKILL, job, "slice-1-0")
        chain.wait_for_end(job)
        _require_checkpoint(chain, job, SAVE_EVERY)

    return strike


def _outlive_deadline(chain: Chain, job: str) -> None:
    """Wait until Kueue evicts the job at its deadline, and check that it is not admitted again."""
    chain.wait(f"the end of the time of {job}", lambda: chain.jobset(job)["spec"]["suspend"], 2 * _DEADLINE_SECONDS)
    chain.wait(f"the pods of {job} to go", lambda: not chain.pods(job), _DEADLINE_SECONDS)
    _require_checkpoint(chain, job, max(line["step"] for line in chain.steps(job)))
    time.sleep(_LEFT_ALONE_SECONDS)
    chain.wait(f"{job} to stay without pods", lambda: not chain.pods(job), 1)


def _require_checkpoint(chain: Chain, job: str, step: int) -> None:
    folder = chain.run_folder(job) / "checkpoints"
    chain.wait(f"a checkpoint of step {step} in {folder}", (folder / str(step)).exists, 1)


LIMITS = (
    between_saves(
        "restarts-used-up",
        "the trainer of a host is killed and the job has no restart left",
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=GONE,
            culprit="slice-",
            cause="the process was killed by SIGKILL",
        ),
        _for_good(Chain.send),
        job={"max_restarts": 0},
    ),
    between_saves(
        "pod-restarts-used-up",
        "the pod of a host is killed and the job has no restart left",
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=GONE | {LAST},
            condition="reaching max number of restarts",
        ),
        _for_good(Chain.send_to_pods),
        job={"max_restarts": 0},
    ),
    Fault(
        "deadline-reached",
        "the job has held its chips for `max_hours`",
        replace(
            PREEMPTED,
            terminal=SUSPENDED,
            starts=1,
            # Its learning rate falls over more steps.
            loss_tolerance=0.05,
            condition="maximum execution time",
        ),
        _outlive_deadline,
        at_step=BETWEEN_SAVES,
        job={"max_hours": _DEADLINE_SECONDS / 3600, "training": {"steps": 50 * STEPS}},
    ),
)

"""Faults that come from the queue: evicted for a more urgent job, stopped, quota cut, Kueue itself down."""

import time
from collections.abc import Callable
from dataclasses import replace

from chaos.fault import UNDISTURBED, Expected, Fault
from chaos.faults.pace import PACED
from chaos.faults.process import left
from chaos.field import BETWEEN_SAVES, Field
from chaos.operators import operator_down
from chaos.rival import asking, has_pods, remove_rival, rival
from infra.kubernetes import Json

_QUEUE = "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/research"
_STAYS_SECONDS = 5
"""Long enough for Kueue to act on what it sees, ten times over."""
_GONE_SECONDS = 90


def _stop(policy: str, meanwhile: Callable[[Field, str], None]) -> Callable[[Field, str], None]:
    """Stops the team's queue, and opens it again."""

    def strike(field: Field, job: str) -> None:
        field.api.patch(_QUEUE, {"spec": {"stopPolicy": policy}})
        try:
            meanwhile(field, job)
        finally:
            field.api.patch(_QUEUE, {"spec": {"stopPolicy": "None"}})

    return strike


def _see_others_wait(field: Field, job: str) -> None:
    """Another job is not let in, though it is more urgent."""
    with asking(field, job):
        time.sleep(_STAYS_SECONDS)
        field.wait("the rival to wait", lambda: not has_pods(field, job), 1)


def _see_evicted(field: Field, job: str) -> None:
    field.wait(f"the pods of {job} to go", lambda: not field.pods(job), _GONE_SECONDS)
    time.sleep(_STAYS_SECONDS)


def _preempt(field: Field, job: str) -> None:
    with rival(field, job):
        time.sleep(_STAYS_SECONDS)


def _cut_quota(field: Field, _: str) -> None:
    groups = field.api.request("GET", _QUEUE)["spec"]["resourceGroups"]
    field.api.patch(_QUEUE, {"spec": {"resourceGroups": _halved(groups)}})
    try:
        field.wait("more in use than the quota", lambda: _used(field) > _quota(field), _STAYS_SECONDS)
        time.sleep(_STAYS_SECONDS)
    finally:
        field.api.patch(_QUEUE, {"spec": {"resourceGroups": groups}})


def _used(field: Field) -> int:
    (flavor,) = field.api.request("GET", _QUEUE)["status"]["flavorsUsage"]
    return sum(int(each["total"]) for each in flavor["resources"])


def _quota(field: Field) -> int:
    (group,) = field.api.request("GET", _QUEUE)["spec"]["resourceGroups"]
    return sum(int(each["nominalQuota"]) for flavor in group["flavors"] for each in flavor["resources"])


def _halved(groups: list[Json]) -> list[Json]:
    (group,) = groups
    (flavor,) = group["flavors"]
    (chips,) = flavor["resources"]
    half = {**chips, "nominalQuota": str(int(chips["nominalQuota"]) // 2)}
    return [{**group, "flavors": [{**flavor, "resources": [half]}]}]


def _free_while_kueue_is_down(field: Field, job: str) -> None:
    with rival(field, job), operator_down(field, "kueue"):
        remove_rival(field, job)
        time.sleep(_STAYS_SECONDS)
        field.wait(f"{job} to be left in the queue", lambda: not field.pods(job), 1)


def _struck_between_saves(name: str, what: str, strike: Callable[[Field, str], None], expected: Expected) -> Fault:
    return Fault(name, what, strike, expected, at_step=BETWEEN_SAVES, edit=PACED)


FAULTS = (
    _struck_between_saves(
        "preempted",
        "a more urgent job of the team takes the chips for a while",
        _preempt,
        replace(left("preempted"), said="Preempted to accommodate a workload"),
    ),
    _struck_between_saves(
        "queue-held", "the queue admits no further jobs", _stop("Hold", _see_others_wait), UNDISTURBED
    ),
    _struck_between_saves(
        "queue-drained", "the queue is drained, then open", _stop("HoldAndDrain", _see_evicted), left("queue-drained")
    ),
    _struck_between_saves("quota-cut", "the team's quota is halved below what it uses", _cut_quota, UNDISTURBED),
    _struck_between_saves(
        "kueue-down",
        "a preempted job waits, and Kueue is down when the chips become free",
        _free_while_kueue_is_down,
        left("kueue-down"),
    ),
)

"""What must hold of where the chips of a slice come from."""

import re
from collections.abc import Iterator

from infra.tpu import FLEX_START_GENERATIONS
from policy.resources import NODE_POOL, at, every, switched_on
from policy.rule import About, Group, Level, ResourceRule, Rule, Severity
from policy.slices import QUEUED_LABEL, TpuPool, of_slices

_RESERVATION_KEY = "compute.googleapis.com/reservation-name"
_LEAST_SECONDS, _MOST_SECONDS = 600, 7 * 24 * 60 * 60
"""That Compute Engine grants by flex-start (https://cloud.google.com/compute/docs/instances/provisioning-models)."""


def _flex_start(pool: TpuPool) -> Iterator[str]:
    if not pool.flex_start:
        return
    properties = pool.resource.properties
    if pool.shape.generation not in FLEX_START_GENERATIONS:
        yield f"expected flexStart on {', '.join(FLEX_START_GENERATIONS)} alone, got it on {pool.shape.generation}"
    if pool.spot:
        yield "expected flexStart or spot, got both"
    if (policy := at(properties, "autoscaling", "locationPolicy")) != "ANY":
        yield f"expected autoscaling with locationPolicy ANY, got {policy!r}"
    if switched_on(properties, "management", "autoRepair", unsaid=True):
        yield "expected management.autoRepair to be false, got nothing or true"
    duration = at(properties, "nodeConfig", "maxRunDuration")
    seconds = re.fullmatch(r"(\d+)s", duration) if duration is not None else None
    if seconds is None or not _LEAST_SECONDS <= int(seconds[1]) <= _MOST_SECONDS:
        yield f"expected maxRunDuration from {_LEAST_SECONDS}s to {_MOST_SECONDS}s, got {duration!r}"


def _queued(pool: TpuPool) -> Iterator[str]:
    if not pool.queued:
        return
    if not pool.flex_start:
        yield "expected flexStart beside queuedProvisioning, got none"
    if pool.labels.get(QUEUED_LABEL) != "true":
        yield f"expected node label {QUEUED_LABEL}=true, which GKE does not set, got none"


def _reservation(pool: TpuPool) -> Iterator[str]:
    if pool.reservation_type != "SPECIFIC_RESERVATION":
        return
    affinity = at(pool.resource.properties, "nodeConfig", "reservationAffinity")
    if (key := at(affinity, "key")) != _RESERVATION_KEY:
        yield f"expected reservationAffinity.key {_RESERVATION_KEY}, got {key!r}"
    if len(values := every(affinity, "values")) != 1:
        yield f"expected one reservation in reservationAffinity.values, got {len(values)}"


def _one_source(pool: TpuPool) -> Iterator[str]:
    kind = pool.reservation_type
    if kind == "SPECIFIC_RESERVATION" and not (pool.spot or pool.flex_start):
        return
    if kind != "NO_RESERVATION":
        source = "spot" if pool.spot else "flex-start" if pool.flex_start else "a source of chips"
        yield f"expected NO_RESERVATION for {source}, or SPECIFIC_RESERVATION with nothing beside it, got {kind!r}"


_FLEX_START = "https://cloud.google.com/kubernetes-engine/docs/concepts/dws"

RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "flex-start-pool",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A flex-start pool grows from nothing, is not repaired and ends",
            "GKE refuses flex-start with spot, repair or nodes of its own, and takes each node back after its time.",
            "Write capacity: {kind: flex-start, max_run_hours: H} and leave the rest to it.",
            _FLEX_START,
        ),
        (NODE_POOL,),
        of_slices(_flex_start),
    ),
    ResourceRule(
        About(
            "queued-pool",
            Group.TPU_SHAPE,
            Severity.CRITICAL,
            Level.MANDATORY,
            "A queued pool is a flex-start pool whose nodes have the label of queued ones",
            "GKE refuses queued TPUs without flex-start; without the label the job finds none of the nodes that came"
            " for it.",
            "Write capacity: {kind: queued, max_run_hours: H} and leave the rest to it.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest",
        ),
        (NODE_POOL,),
        of_slices(_queued),
    ),
    ResourceRule(
        About(
            "reservation-named",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "A slice on a reservation names it",
            "Without key and name GKE refuses the pool, or it takes chips that another team has reserved.",
            "Write capacity: {kind: reservation, name: NAME}.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations",
        ),
        (NODE_POOL,),
        of_slices(_reservation),
    ),
    ResourceRule(
        About(
            "one-source-of-chips",
            Group.TPU_SHAPE,
            Severity.HIGH,
            Level.MANDATORY,
            "Chips of a slice come from one source",
            "ANY_RESERVATION, which is also the default, takes whatever reservation has room and falls back to chips on"
            " demand at full price without a word; spot and flex-start never come from a reservation.",
            "Choose one capacity for the slice group: on-demand, spot, reservation, flex-start or queued.",
            "https://cloud.google.com/compute/docs/instances/reservations-consume",
        ),
        (NODE_POOL,),
        of_slices(_one_source),
    ),
)

"""Plans that keep and break the rules of `policy.rules.chips`."""

from dataclasses import replace

from tests.policy.example import Example
from tests.policy.examples.plan import (
    POD,
    QUOTA,
    alone,
    among,
    broken,
    cluster_queue,
    configuration,
    flavor,
    flex_start_pool,
    having,
    job_set,
    local_queue,
    on_demand_pool,
    reserved_pool,
    several,
    spot_pool,
)

_ON_DEMAND, _SOURCE, _QUEUED = "on-demand-chips", "one-source-of-chips", "job-in-a-queue"
_PATIENCE = "flex-start-patience"
_RARE_SAVES = '{"training": {"save_every_minutes": 240}, "storage": {"path": "gs://bucket/job"}}'

EXAMPLES: dict[str, Example] = {
    _ON_DEMAND: Example(
        (on_demand_pool(_ON_DEMAND),),
        tuple(
            having(on_demand_pool(f"{_ON_DEMAND}-{index}"), "placementPolicy.tpuTopology", "16x16")
            for index in range(2)
        ),
        "256 chips on demand, got 512",
    ),
    **alone(
        "slice-offered",
        spot_pool,
        "the nearest are 4x4",
        ("placementPolicy.tpuTopology", "4x5"),
        ("nodeConfig.machineType", "ct99-standard-4t"),
    ),
    _SOURCE: Example(
        (on_demand_pool(_SOURCE), spot_pool(f"{_SOURCE}-spot"), reserved_pool(f"{_SOURCE}-reserved")),
        (
            *broken(
                _SOURCE,
                on_demand_pool,
                ("nodeConfig.reservationAffinity.consumeReservationType", "ANY_RESERVATION"),
                ("nodeConfig.reservationAffinity", None),
            ),
            *broken(
                f"{_SOURCE}-reserved",
                reserved_pool,
                ("nodeConfig.spot", True),
                ("nodeConfig.reservationAffinity.values", []),
            ),
        ),
        "expected NO_RESERVATION for chips that are not reserved, got ANY_RESERVATION",
    ),
    **among(
        "job-ends",
        (job_set, on_demand_pool),
        "metadata.labels",
        {"kueue.x-k8s.io/queue-name": "job-ends"},
        "expected label kueue.x-k8s.io/max-exec-time-seconds",
    ),
    **among(
        "job-saves",
        (job_set, spot_pool),
        (*POD, "containers", 0, "env", 0, "value"),
        _RARE_SAVES,
        "at least every 60 minutes, got 240",
    ),
    **among("job-grace", (job_set, spot_pool), (*POD, "terminationGracePeriodSeconds"), 5, "for a last save, got 5"),
    **alone(
        "job-restarts",
        job_set,
        "maxRestarts of 1 or more, got none",
        ("spec.failurePolicy.maxRestarts", 0),
        ("spec.failurePolicy.restartStrategy", None),
    ),
    **several(
        "job-kept",
        "expected no spec.ttlSecondsAfterFinished, got 600",
        (job_set, ("spec.ttlSecondsAfterFinished", 600)),
        also=(replace(job_set("job-kept"), delete_before_replace=False),),
    ),
    _QUEUED: Example(
        (job_set(_QUEUED), local_queue(_QUEUED)),
        (
            having(job_set(_QUEUED), "metadata.labels", None),
            having(job_set(f"{_QUEUED}-held"), "spec.suspend", True),
            local_queue(_QUEUED),
        ),
        "with a queue of namespace 'job-in-a-queue' (job-in-a-queue), got nothing",
    ),
    **among(
        "quota-within-chips",
        (cluster_queue, flavor, spot_pool),
        (*QUOTA, "nominalQuota"),
        "32",
        "at most 16 chips of flavor 'quota-within-chips', got 32",
    ),
    **among(
        "chips-given-out",
        (cluster_queue, flavor, spot_pool),
        (*QUOTA, "nominalQuota"),
        "12",
        "all 16 chips of flavor 'chips-given-out', got 12",
    ),
    _PATIENCE: Example(
        (flex_start_pool(_PATIENCE), configuration(_PATIENCE)),
        (flex_start_pool(_PATIENCE), configuration(_PATIENCE, waitForPodsReady={"timeout": "30m"})),
        "expected waitForPodsReady.timeout of 24h or more, got 30m",
    ),
}

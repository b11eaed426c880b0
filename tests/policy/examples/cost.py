"""Plans that keep and break the rules of `policy.rules.cost`."""

from tests.policy.example import Example
from tests.policy.examples.plan import (
    POD,
    alone,
    among,
    bucket,
    cluster,
    having,
    job_set,
    on_demand_pool,
    repository,
    spot_pool,
    system_pool,
)

_ON_DEMAND = "on-demand-chips"
_BIG_TOPOLOGY = ("placementPolicy", "tpuTopology")
_LABELS = ("metadata", "labels")
_SPECIFICATION = '{"training": {"save_every_minutes": 240}, "storage": {"path": "gs://bucket/job"}}'
_DAYS_31 = 31 * 24 * 60 * 60


EXAMPLES: dict[str, Example] = {
    _ON_DEMAND: Example(
        (on_demand_pool(_ON_DEMAND),),
        tuple(having(on_demand_pool(f"{_ON_DEMAND}-{index}"), _BIG_TOPOLOGY, "16x16") for index in range(2)),
        "256 chips on demand, got 512",
    ),
    **among(
        "job-ends",
        (job_set, on_demand_pool),
        _LABELS,
        {"kueue.x-k8s.io/queue-name": "job-ends"},
        "expected label kueue.x-k8s.io/max-exec-time-seconds",
    ),
    **among(
        "job-saves",
        (job_set, spot_pool),
        (*POD, "containers", 0, "env", 0, "value"),
        _SPECIFICATION,
        "every 60 minutes or more often, got 240",
    ),
    **among(
        "job-restarts-uncounted",
        (job_set, spot_pool),
        ("spec", "failurePolicy", "rules"),
        None,
        "expected a failurePolicy rule RestartJobSetAndIgnoreMaxRestarts",
    ),
    **among("job-grace", (job_set, spot_pool), (*POD, "terminationGracePeriodSeconds"), 5, "to save in, got 5"),
    **alone("labels-for-billing", bucket, ("labels",), None, "expected labels, got none"),
    **alone("system-nodes-small", system_pool, ("nodeConfig", "machineType"), "n2-standard-64", "got 128"),
    **alone("usual-logs", cluster, ("monitoringConfig", "enableComponents", 0), "CADVISOR", "got CADVISOR besides"),
    **alone("soft-delete-ends", bucket, ("softDeletePolicy", "retentionDurationSeconds"), _DAYS_31, "30 days, got 31"),
    **alone("uploads-end", bucket, ("lifecycleRules",), None, "AbortIncompleteMultipartUpload, got none"),
    **alone("images-go", repository, ("cleanupPolicies",), None, "a clean-up policy that deletes"),
}

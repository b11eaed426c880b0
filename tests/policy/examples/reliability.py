"""Plans that keep and break the rules of `policy.rules.reliability`."""

from tests.policy.example import Example
from tests.policy.examples.plan import (
    JOB,
    alone,
    among,
    bucket,
    cluster,
    job_set,
    spot_pool,
    system_pool,
    without_option,
)

_DELETE_BY_AGE = [{"action": {"type": "Delete"}, "condition": {"age": 30}}]

EXAMPLES: dict[str, Example] = {
    **alone("deletion-protection", cluster, ("deletionProtection",), False, "to be true, got false"),
    **alone("regional-control-plane", cluster, ("location",), "us-east5-b", "got 'us-east5-b'"),
    **alone(
        "cluster-observed",
        cluster,
        ("monitoringConfig", "enableComponents"),
        ["SYSTEM_COMPONENTS"],
        "expected JOBSET among the components of monitoringConfig",
    ),
    **among("mounted-buckets", (cluster, spot_pool, job_set), ("addonsConfig",), None, "for mounted-buckets, got none"),
    **alone("auto-repair", system_pool, ("management", "autoRepair"), False, "autoRepair to be true"),
    **alone("auto-upgrade", system_pool, ("version",), "1.33.1-gke.1", "no version beside autoUpgrade"),
    **alone(
        "slice-not-interrupted", spot_pool, ("maintenancePolicies",), None, "exclusionUntilEndOfSupports, got none"
    ),
    **alone("system-nodes", system_pool, ("nodeCount",), 1, "2 or more nodes for the controllers, got 1"),
    **alone("bucket-not-emptied", bucket, ("forceDestroy",), True, "forceDestroy to be false"),
    **alone("bucket-keeps-checkpoints", bucket, ("lifecycleRules",), _DELETE_BY_AGE, "got one by age"),
    **among("bucket-region", (bucket, spot_pool), ("location",), "EUROPE-WEST4", "(us-east5), got europe-west4"),
    **alone("bucket-folders", bucket, ("hierarchicalNamespace",), None, "hierarchicalNamespace to be enabled"),
    **alone("job-restarts", job_set, ("spec", "failurePolicy", "maxRestarts"), None, "maxRestarts of 1 or more"),
    **alone("job-restarts-together", job_set, (*JOB, "backoffLimit"), 6, "expected backoffLimit 0, got 6"),
    **alone("job-kept", job_set, ("spec", "ttlSecondsAfterFinished"), 600, "got 600"),
    **without_option("job-deleted-first", job_set, "delete_before_replace", "the option deleteBeforeReplace"),
}

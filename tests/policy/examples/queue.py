"""Plans that keep and break the rules of `policy.rules.queue`."""

from tests.policy.example import Example
from tests.policy.examples.plan import (
    POD,
    QUOTA,
    admission_check,
    alone,
    among,
    cluster_queue,
    configuration,
    flavor,
    flex_start_pool,
    having,
    job_set,
    local_queue,
    namespace,
    priority,
    provisioning,
    queued_pool,
    spot_pool,
    topology,
)

_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
_TEAM = "one-queue-for-each-team"
_MANAGES = "kueue-manages-jobs"
_PATIENCE = "flex-start-patience"
_QUEUED = "queued-slices-requested"
_STORAGE = "example.com/fast-storage"

EXAMPLES: dict[str, Example] = {
    _TEAM: Example(
        (namespace(_TEAM), local_queue(_TEAM), configuration(_TEAM)),
        (namespace(_TEAM), configuration(_TEAM)),
        f"queues to one ClusterQueue in namespace '{_TEAM}', got 0",
    ),
    **among("queue-leads-somewhere", (local_queue, cluster_queue), ("spec", "clusterQueue"), "gone", "got 'gone'"),
    **among(
        "queue-takes-its-team",
        (cluster_queue, local_queue, namespace),
        ("spec", "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name"),
        "other",
        "to take jobs of namespace 'queue-takes-its-team'",
    ),
    **among("flavor-exists", (cluster_queue, flavor), (*QUOTA[:-2], "name"), "gone", "expected flavor 'gone'"),
    **among("flavor-topology-exists", (flavor, topology), ("spec", "topologyName"), "gone", "expected topology 'gone'"),
    **among(
        "flavor-of-one-kind",
        (flavor, cluster_queue, spot_pool),
        ("spec", "nodeLabels", "cloud.google.com/gke-tpu-topology"),
        "8x8",
        "slices of one kind, got those of none",
    ),
    **among("slice-counted-once", (flavor, spot_pool), ("spec", "nodeLabels", "slice-group"), "no", "got none"),
    **among("flavor-taints", (flavor, spot_pool), ("spec", "nodeTaints"), None, "taints google.com/tpu, got none"),
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
        "0",
        "all 16 chips of flavor 'chips-given-out', got 0",
    ),
    **among(
        "quota-in-whole-slices",
        (cluster_queue, flavor, spot_pool),
        (*QUOTA, "nominalQuota"),
        "12",
        "in whole slices of 16 chips, got 12",
    ),
    **alone("limits-make-sense", cluster_queue, (*QUOTA, "lendingLimit"), "17", "at most the quota of 16, got 17"),
    **among("job-in-a-queue", (job_set, local_queue), ("metadata", "labels", _QUEUE_LABEL), None, "got None"),
    **alone("job-left-to-kueue", job_set, ("spec", "suspend"), True, "no spec.suspend"),
    **among(
        "priority-exists",
        (job_set, priority),
        ("metadata", "labels", "kueue.x-k8s.io/priority-class"),
        "urgent",
        "got 'urgent'",
    ),
    **among(
        "requests-covered",
        (job_set, local_queue, cluster_queue, configuration),
        (*POD, "containers", 0, "resources", "requests", _STORAGE),
        "1",
        f"to cover {_STORAGE}, got google.com/tpu",
    ),
    **among(
        "job-tolerates-slices",
        (job_set, spot_pool, lambda rule: having(flavor(rule), ("spec", "nodeTaints", 1, "key"), "google.com/tpu")),
        (*POD, "tolerations"),
        [],
        "tolerations of google.com/tpu, got none",
    ),
    _MANAGES: Example(
        (configuration(_MANAGES),),
        (configuration(_MANAGES, integrations={"frameworks": ["batch/job"]}),),
        "expected jobset.x-k8s.io/jobset among integrations.frameworks",
    ),
    _PATIENCE: Example(
        (flex_start_pool(_PATIENCE), configuration(_PATIENCE)),
        (flex_start_pool(_PATIENCE), configuration(_PATIENCE, waitForPodsReady={"timeout": "30m"})),
        "expected waitForPodsReady.timeout of 24h or more, got 30m",
    ),
    **among(
        _QUEUED,
        (provisioning, admission_check, cluster_queue, flavor, queued_pool),
        ("spec", "parameters", "tpu-topology"),
        "8x8",
        "to ask for tpu-topology 4x4, got 8x8",
    ),
}

"""What must hold of all that is billed beside chips."""

import re
from collections.abc import Callable, Iterator, Sequence

from policy.resources import BUCKET, CLUSTER, NODE_POOL, REPOSITORY, at, every, of_type
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule
from policy.slices import is_tpu

_MOST_SYSTEM_CPUS = 64
_MOST_SOFT_DELETE_DAYS = 30
_SECONDS_PER_DAY = 24 * 60 * 60
_CPUS = re.compile(r"-(\d+)(?:-|$)")
_USUAL_LOGS = {"SYSTEM_COMPONENTS", "WORKLOADS"}
_USUAL_METRICS = {"SYSTEM_COMPONENTS", "JOBSET"}
_LABELS: dict[str, Callable[[Declared], object]] = {
    CLUSTER: lambda found: at(found.properties, "resourceLabels"),
    NODE_POOL: lambda found: at(found.properties, "nodeConfig", "resourceLabels"),
    BUCKET: lambda found: at(found.properties, "labels"),
    REPOSITORY: lambda found: at(found.properties, "labels"),
}
"""What is billed and can be labelled, and where its labels stand."""


def _labelled(found: Declared) -> Iterator[str]:
    if not _LABELS[found.type](found):
        yield "expected labels, got none"


def _small_system(resources: Sequence[Declared]) -> Iterator[Broken]:
    cpus = sum(_cpus(pool) for pool in of_type(resources, NODE_POOL) if not is_tpu(pool))
    if cpus > _MOST_SYSTEM_CPUS:
        yield Broken(f"expected at most {_MOST_SYSTEM_CPUS} CPUs in nodes without chips, got {cpus}", None)


def _cpus(pool: Declared) -> int:
    """Of all nodes, as far as the machine type names them, as `e2-standard-8` and `n2-custom-8-32768` do."""
    size = _CPUS.search(at(pool.properties, "nodeConfig", "machineType") or "")
    zones = len(every(pool.properties, "nodeLocations")) or 1
    nodes = at(pool.properties, "nodeCount") or at(pool.properties, "autoscaling", "maxNodeCount") or 0
    return int(nodes) * zones * (int(size[1]) if size else 0)


def _usual_logs(cluster: Declared) -> Iterator[str]:
    for config, usual in {"loggingConfig": _USUAL_LOGS, "monitoringConfig": _USUAL_METRICS}.items():
        more = sorted(set(every(cluster.properties, config, "enableComponents")) - usual)
        if more:
            yield f"expected {', '.join(sorted(usual))} in {config}, got {', '.join(more)} besides"


def _soft_delete_ends(bucket: Declared) -> Iterator[str]:
    seconds = at(bucket.properties, "softDeletePolicy", "retentionDurationSeconds") or 0
    if seconds > _MOST_SOFT_DELETE_DAYS * _SECONDS_PER_DAY:
        yield f"expected softDeletePolicy of at most {_MOST_SOFT_DELETE_DAYS} days, got {seconds / _SECONDS_PER_DAY:g}"


def _uploads_end(bucket: Declared) -> Iterator[str]:
    actions = [at(rule, "action", "type") for rule in every(bucket.properties, "lifecycleRules")]
    if "AbortIncompleteMultipartUpload" not in actions:
        yield "expected a lifecycle rule AbortIncompleteMultipartUpload, got none"


def _images_go(repository: Declared) -> Iterator[str]:
    actions = [at(policy, "action") for policy in every(repository.properties, "cleanupPolicies")]
    if "DELETE" not in actions or at(repository.properties, "cleanupPolicyDryRun"):
        yield "expected a clean-up policy that deletes, got none"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "labels-for-billing",
            Group.COST,
            Severity.MEDIUM,
            Level.MANDATORY,
            "Everything that is billed and can have labels has some",
            "In the bill nobody can tell whose chips, disks and buckets they are (CKV_GCP_21).",
            "Pass settings.resource_labels to the resource; add your own under labels.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels",
        ),
        tuple(_LABELS),
        _labelled,
    ),
    StackRule(
        About(
            "system-nodes-small",
            Group.COST,
            Severity.LOW,
            Level.ADVISORY,
            f"Nodes without chips have at most {_MOST_SYSTEM_CPUS} CPUs in all",
            "They run Kueue and JobSet alone, which need a few even for thousands of hosts.",
            "Choose a smaller cluster.system_machine_type or fewer cluster.system_nodes.",
            "https://cloud.google.com/compute/vm-instance-pricing",
        ),
        _small_system,
    ),
    ResourceRule(
        About(
            "usual-logs",
            Group.COST,
            Severity.LOW,
            Level.ADVISORY,
            "A cluster sends no more logs and metrics than are looked at",
            "Metrics of every kubelet and container are billed by sample, from thousands of hosts.",
            "Leave loggingConfig and monitoringConfig to infra.cluster.",
            "https://cloud.google.com/stackdriver/pricing",
        ),
        (CLUSTER,),
        _usual_logs,
    ),
    ResourceRule(
        About(
            "soft-delete-ends",
            Group.COST,
            Severity.MEDIUM,
            Level.ADVISORY,
            "Deleted checkpoints are not billed for months",
            "The trainer deletes most checkpoints that it writes: each is billed until its soft delete ends.",
            f"Set softDeletePolicy to {_MOST_SOFT_DELETE_DAYS} days or less.",
            "https://cloud.google.com/storage/docs/soft-delete",
        ),
        (BUCKET,),
        _soft_delete_ends,
    ),
    ResourceRule(
        About(
            "uploads-end",
            Group.COST,
            Severity.LOW,
            Level.ADVISORY,
            "Uploads that nobody finished are removed",
            "Every host that dies while it saves leaves parts that no listing shows and that are billed for good.",
            "Keep the lifecycle rule AbortIncompleteMultipartUpload.",
            "https://cloud.google.com/storage/docs/lifecycle",
        ),
        (BUCKET,),
        _uploads_end,
    ),
    ResourceRule(
        About(
            "images-go",
            Group.COST,
            Severity.LOW,
            Level.ADVISORY,
            "Old images are removed",
            "An image of some gigabytes for each build stays and is billed.",
            "Keep the clean-up policies of infra.storage.",
            "https://cloud.google.com/artifact-registry/docs/repositories/cleanup-policy",
        ),
        (REPOSITORY,),
        _images_go,
    ),
)

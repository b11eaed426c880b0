"""What must hold of the control plane and of what the cluster tells."""

from collections.abc import Iterator, Sequence

from policy.jobs import slice_jobs
from policy.resources import CLUSTER, at, ends, every, of_type, switched_on
from policy.rule import About, Broken, Declared, Group, Level, ResourceRule, Rule, Severity, StackRule

_MOUNT_DRIVER = "gcsfuse.csi.storage.gke.io"


def _deletion_protection(cluster: Declared) -> Iterator[str]:
    if not ends(cluster) and not switched_on(cluster.properties, "deletionProtection", unsaid=True):
        yield "expected deletionProtection to be true, got false"


def _regional(cluster: Declared) -> Iterator[str]:
    location = at(cluster.properties, "location")
    # `us-east5` is a region; `us-east5-b` and `us-central1-ai1a` are zones.
    if location is None or location.count("-") != 1:
        yield f"expected a region as location, got {location!r}"


def _observed(cluster: Declared) -> Iterator[str]:
    expected = {
        "monitoringConfig": {"SYSTEM_COMPONENTS", "JOBSET"},
        "loggingConfig": {"SYSTEM_COMPONENTS", "WORKLOADS"},
    }
    for config, components in expected.items():
        got = every(cluster.properties, config, "enableComponents")
        if missing := sorted(components.difference(got)):
            yield f"expected {', '.join(missing)} among the components of {config}, got {', '.join(got) or 'none'}"


def _mounts(resources: Sequence[Declared]) -> Iterator[Broken]:
    mounting = [
        job.resource.name
        for job in slice_jobs(resources)
        if any(at(volume, "csi", "driver") == _MOUNT_DRIVER for volume in every(job.pod, "volumes"))
    ]
    for cluster in of_type(resources, CLUSTER):
        if mounting and not at(cluster.properties, "addonsConfig", "gcsFuseCsiDriverConfig", "enabled"):
            yield Broken(f"expected gcsFuseCsiDriverConfig for {', '.join(mounting)}, got none", cluster.urn)


RULES: tuple[Rule, ...] = (
    ResourceRule(
        About(
            "deletion-protection",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "A cluster is not deleted by mistake",
            "One `destroy`, or a change that replaces the cluster, ends every job in it and gives its chips back.",
            "Set cluster.deletion_protection: true; a stack that comes and goes has an exception.",
            "https://www.pulumi.com/registry/packages/gcp/api-docs/container/cluster/",
        ),
        (CLUSTER,),
        _deletion_protection,
    ),
    ResourceRule(
        About(
            "regional-control-plane",
            Group.RELIABILITY,
            Severity.MEDIUM,
            Level.ADVISORY,
            "The control plane is regional",
            "A zonal one is away during its upgrades: no failed host is replaced and no job restarts meanwhile.",
            "Let the cluster's location be cloud.region; its nodes stay in the zones that the stack file names.",
            "https://cloud.google.com/kubernetes-engine/docs/concepts/regional-clusters",
        ),
        (CLUSTER,),
        _regional,
    ),
    ResourceRule(
        About(
            "cluster-observed",
            Group.RELIABILITY,
            Severity.MEDIUM,
            Level.MANDATORY,
            "The cluster keeps logs of jobs and metrics of JobSets",
            "The end of a job whose pods are gone cannot be explained, and nobody sees how often it restarts"
            " (CKV_GCP_1, CKV_GCP_8).",
            "Leave loggingConfig and monitoringConfig to infra.cluster.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/jobset-metrics",
        ),
        (CLUSTER,),
        _observed,
    ),
    StackRule(
        About(
            "mounted-buckets",
            Group.RELIABILITY,
            Severity.HIGH,
            Level.MANDATORY,
            "A cluster whose jobs mount buckets has the driver for it",
            "The pods wait for their volume until they are evicted, chips and all.",
            "Set datasets.mount, which enables the driver, instead of writing the volume by hand.",
            "https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup",
        ),
        _mounts,
    ),
)

"""The RAM disks of TPU nodes, in which training jobs keep their newest state across restarts.

GKE's multi-tier checkpointing makes one in the memory of each node and mounts it into every pod that asks for it. It
outlives pods and ends with the node. GKE can also copy such files to other nodes and to a bucket, but only at the
request of Orbax. The trainer requests none of that, because the other slices already hold the same.

https://cloud.google.com/kubernetes-engine/docs/how-to/machine-learning/training/multi-tier-checkpointing and
https://github.com/GoogleCloudPlatform/high-scale-checkpointing-controller
"""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.identity import workload_principal
from infra.names import TPU_RESOURCE
from infra.objects import KubernetesObject, Manifest, manifest, mark_ours
from infra.pods import node_selector, tolerations
from infra.settings.schema import SliceGroup
from infra.storage import unfinished_uploads

API_VERSION, NAME = "checkpointing.gke.io/v1", "ram-disks"
_NAMESPACE, _ACCOUNT = "gke-managed-checkpointing", "gke-checkpointing-multitier-node"
"""Account of GKE's pods that make the RAM disks."""


@dataclass(frozen=True)
class RamDisksArgs:
    """Nodes and size of the RAM disks."""

    project: str
    project_number: pulumi.Input[str]
    region: str
    bucket: str
    """Name of the bucket that GKE's driver demands. It remains empty."""
    groups: Mapping[str, SliceGroup]
    gib: int
    """Size of each RAM disk."""
    labels: Mapping[str, str]


class RamDisks(pulumi.ComponentResource):
    """A RAM disk on each node of the slices. The cluster needs GKE's add-on for high-scale checkpointing."""

    def __init__(self, name: str, args: RamDisksArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:RamDisks", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        # The driver mounts it on every node, and pods could make it read and write there. So it is not the bucket of
        # the teams' checkpoints.
        bucket = gcp.storage.Bucket(
            name,
            name=args.bucket,
            location=args.region.upper(),
            labels=args.labels,
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            hierarchical_namespace=gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
            lifecycle_rules=[unfinished_uploads()],
            opts=inside,
        )
        grant = gcp.storage.BucketIAMMember(
            f"{name}-driver",
            bucket=bucket.name,
            role="roles/storage.objectUser",
            member=workload_principal(args.project, args.project_number, _NAMESPACE, _ACCOUNT),
            opts=inside,
        )
        configuration = mark_ours(ram_disks(args.bucket, args.groups, args.gib))
        KubernetesObject(f"{name}-driver", configuration, pulumi.ResourceOptions(parent=self, depends_on=[grant]))
        self.register_outputs({})


def ram_disks(bucket: str, groups: Mapping[str, SliceGroup], gib: int) -> Manifest:
    """Return the only CheckpointConfiguration of a cluster. Groups of several generations have no label in common that
    other nodes lack, so that all nodes then have the driver; only pods that write to a RAM disk take memory."""
    keys = dict.fromkeys([TPU_RESOURCE, *(str(each["key"]) for each in tolerations(groups))])
    spec: Manifest = {
        "cloudStorageBucketName": bucket,
        "nodeSelector": node_selector(groups),
        "tolerations": [{"key": key, "operator": "Exists"} for key in keys],
        "inMemoryVolumeSize": f"{gib}Gi",
    }
    return manifest(API_VERSION, "CheckpointConfiguration", NAME, spec=spec)

"""The component `Foundation`: what a fleet needs of Google Cloud, up to a cluster without TPUs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Self

import pulumi
import pulumi_gcp as gcp

from infra.existing.find import Found
from infra.gke_cluster import Cluster, ClusterArgs, ClusterOutputs, Network, NetworkArgs, NodeSubnet
from infra.identity import GoogleApis, NodeIdentity, NodeIdentityArgs, project_number
from infra.objects import child_options, child_prefix
from infra.stack.names import MANAGED_BY
from infra.stack.settings import schema
from infra.stack.settings.errors import FieldError, refuse
from infra.stack.settings.read import check
from infra.stack.settings.stack import Draft, Settings
from infra.storage import RepositoryRef, foreign_repositories, image_repository


@dataclass(frozen=True, kw_only=True)
class FoundationArgs:
    """Location, cluster and network.

    Raises:
        SettingsError: the sections do not fit each other; lists all errors.
    """

    cloud: schema.Cloud
    """Project, region and zone."""
    cluster: schema.Cluster
    """Settings of the cluster. Its name is the prefix of all other names in the project."""
    network: schema.Network = schema.Network()
    """Address ranges. Default: those of the stack file."""
    found: Found | None = None
    """What exists already. Default: nothing, so the sections `cluster` and `network` name nothing that exists."""
    second_network: bool = False
    """Whether to declare a network for the second interface of TPU hosts. Default: no."""
    mounts_datasets: bool = False
    """Whether pods may mount a bucket as a folder. Default: no."""
    repositories: Mapping[str, RepositoryRef] = field(default_factory=dict[str, RepositoryRef])
    """Other repositories of the project from which nodes pull images, by name of the grant. Default: none."""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    """Labels of cluster, nodes and repository, in addition to `managed-by`. Default: none."""

    def __post_init__(self) -> None:
        refuse(check(Draft(cloud=self.cloud, cluster=self.cluster, network=self.network)))
        if self.found is None and (self.cluster.existing or self.network.existing):
            expected, fix = "what exists already", "pass what infra.existing.find returns"
            refuse([FieldError("found", expected, "nothing", fix)])

    @classmethod
    def of(cls, settings: Settings, found: Found | None) -> Self:
        """Return the foundation of a stack file, with what exists already."""
        return cls(
            cloud=settings.cloud,
            cluster=settings.cluster,
            network=settings.network,
            found=found,
            second_network=settings.second_network,
            mounts_datasets=settings.mounted_bucket is not None,
            repositories=foreign_repositories(settings),
            labels=settings.resource_labels,
        )


class Foundation(pulumi.ComponentResource):
    """Google APIs, a network, an identity for nodes, a repository for images, and a GKE cluster. It creates no network
    and no cluster that exists already.

    Its options need the provider of Google Cloud, with the project of the arguments.
    """

    apis: GoogleApis
    repository: gcp.artifactregistry.Repository
    """Repository of the trainer's image."""
    cluster: ClusterOutputs
    """Cluster for a `Fleet`."""
    project_number: pulumi.Output[str]

    def __init__(self, name: str, args: FoundationArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("tpu-multislice:infra:Foundation", name, None, opts)
        prefix, inside = child_prefix(name, "foundation"), partial(child_options, self)
        cloud, labels = args.cloud, {**MANAGED_BY, **args.labels}
        self.apis = GoogleApis(f"{prefix}apis", cloud.project, inside())
        own = RepositoryRef(cloud.region, args.cluster.name)
        self.repository = image_repository(f"{prefix}images", own, labels, inside(self.apis))
        number = pulumi.InvokeOutputOptions(parent=self, depends_on=[self.apis])
        self.project_number = project_number(cloud.project, number)
        account = f"{args.cluster.name}-nodes"
        nodes_args = NodeIdentityArgs(cloud.project, account, self.repository, args.repositories)
        nodes = NodeIdentity(f"{prefix}nodes", nodes_args, inside(self.apis))
        self.cluster = self._found_cluster(args, nodes) or self._own_cluster(prefix, args, nodes)
        outputs = {"cluster": self.cluster.name, "endpoint": self.cluster.endpoint, "node_account": nodes.email}
        self.register_outputs(outputs)

    def _found_cluster(self, args: FoundationArgs, nodes: NodeIdentity) -> ClusterOutputs | None:
        found, existing = args.found, args.cluster.existing
        if existing is None or found is None or found.endpoint is None:
            return None
        return ClusterOutputs(
            name=existing.name,
            endpoint=found.endpoint,
            node_account=nodes.email,
            ranges=found.ranges,
            project_number=self.project_number,
            shared=found.shared,
        )

    def _own_cluster(self, prefix: str, args: FoundationArgs, nodes: NodeIdentity) -> ClusterOutputs:
        network, inside = None, partial(child_options, self)
        if args.network.existing is None:
            network_args = NetworkArgs(args.cluster.name, args.cloud.region, args.network, args.second_network)
            network = Network(f"{prefix}network", network_args, inside(self.apis))
            subnet = network.node_subnet
        else:
            subnet = NodeSubnet.found(args.network.existing, args.cloud)
        labels = {**MANAGED_BY, **args.labels}
        cluster_args = ClusterArgs(args.cloud, args.cluster, subnet, nodes.email, labels, args.mounts_datasets)
        cluster = Cluster(f"{prefix}cluster", cluster_args, inside(*([network] if network else []), nodes))
        return ClusterOutputs(
            name=cluster.name,
            endpoint=cluster.endpoint,
            node_account=nodes.email,
            ranges=args.found.ranges if args.found else args.network,
            second_network=network.second.names if network and network.second else None,
            project_number=self.project_number,
            resource=cluster.resource,
        )

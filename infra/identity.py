"""Who the nodes and the training pods are, and what they may do.

Owns service accounts and grants. Grants add a member and never list all of them, so that those made
by others stay. No keys: pods act through workload identity, nodes through the metadata server.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.image import RepositoryPlace
from infra.pods import SERVICE_ACCOUNT

NODE_ROLES = {
    "role": "roles/container.defaultNodeServiceAccount",
    # Image streaming asks whether the node may use the project's services, which the role above does not allow.
    "streaming": "roles/serviceusage.serviceUsageConsumer",
}
"""All that the program grants in a project, by the names of the grants."""
_CHECKPOINT_ROLES = {
    "objects": "roles/storage.objectUser",
    # Orbax and TensorStore ask for the bucket itself, which the role above does not allow.
    "bucket": "roles/storage.legacyBucketReader",
}
_DATASET_ROLE = "roles/storage.objectViewer"
_NODES = "all_nodes"
"""In names of grants; no namespace has such a name."""


@dataclass(frozen=True)
class NodeIdentityArgs:
    """Project of the nodes, and the repositories they pull from."""

    project: str
    account_id: str
    repository: gcp.artifactregistry.Repository
    foreign_repositories: Mapping[str, RepositoryPlace]
    """Others of the project, which images of jobs lie in, by the names that the grants have."""


class NodeIdentity(pulumi.ComponentResource):
    """The service account of all nodes: it may write logs and metrics, and pull and stream images."""

    email: pulumi.Output[str]

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:NodeIdentity", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            name, account_id=args.account_id, display_name="Nodes of the TPU cluster", opts=inside
        )
        member = _service_account(account.email)
        for grant, role in NODE_ROLES.items():
            gcp.projects.IAMMember(f"{name}-{grant}", project=args.project, role=role, member=member, opts=inside)
        for grant, repository in {"images": args.repository, **args.foreign_repositories}.items():
            gcp.artifactregistry.RepositoryIamMember(
                f"{name}-{grant}",
                location=repository.location,
                repository=repository.repository_id,
                role="roles/artifactregistry.reader",
                member=member,
                opts=inside,
            )
        self.email = account.email
        self.register_outputs({})


@dataclass(frozen=True)
class TrainerAccessArgs:
    """Who trains, by the name that the grants have, and the buckets."""

    members: Mapping[str, pulumi.Output[str]]
    checkpoints: pulumi.Output[str]
    datasets: str | None


class TrainerAccess(pulumi.ComponentResource):
    """The right of each team's training pods to read and write checkpoints and to read data sets.

    The pool of identities exists once the project has a cluster with workload identity, so this
    depends on the cluster.
    """

    def __init__(self, name: str, args: TrainerAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:TrainerAccess", name, None, opts)
        for who, member in args.members.items():
            for scope, role in _CHECKPOINT_ROLES.items():
                self._grant(f"{name}-{who}-{scope}", args.checkpoints, role, member)
            if args.datasets:
                self._grant(f"{name}-{who}-datasets", args.datasets, _DATASET_ROLE, member)
        self.register_outputs({})

    def _grant(self, name: str, bucket: pulumi.Input[str], role: str, member: pulumi.Output[str]) -> None:
        inside = pulumi.ResourceOptions(parent=self)
        gcp.storage.BucketIAMMember(name, bucket=bucket, role=role, member=member, opts=inside)


def project_number(project: str, opts: pulumi.InvokeOutputOptions) -> pulumi.Output[str]:
    """The number that Google gave the project; names of identities hold it."""
    return gcp.organizations.get_project_output(project_id=project, opts=opts).apply(lambda found: found.number)


def trainers(
    project: str,
    number: pulumi.Output[str],
    namespaces: Iterable[str],
    node_account: pulumi.Output[str],
    host_network: bool,
) -> dict[str, pulumi.Output[str]]:
    """Whom the training pods of these namespaces act as.

    Pods that use the interfaces of their host act as the node, from which the metadata server cannot tell
    them (https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity). Such a right is that
    of every pod of this kind, in whatever namespace.
    """
    members = {namespace: workload_principal(project, number, namespace) for namespace in namespaces}
    return members | ({_NODES: _service_account(node_account)} if host_network else {})


def _service_account(email: pulumi.Output[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat("serviceAccount:", email)


def workload_principal(project: str, number: pulumi.Output[str], namespace: str) -> pulumi.Output[str]:
    """The training pods of a namespace, as a member of an IAM grant."""
    pool = f"locations/global/workloadIdentityPools/{project}.svc.id.goog"
    return pulumi.Output.concat(
        "principal://iam.googleapis.com/projects/", number, f"/{pool}/subject/ns/{namespace}/sa/{SERVICE_ACCOUNT}"
    )

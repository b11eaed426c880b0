"""The project's Google Cloud APIs, the accounts of nodes and training pods, and their permissions.

Grants add a member and never list all members, so that grants made by others are kept. There are no keys: pods act
through workload identity, nodes through the metadata server.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.stack.names import APIS, ON_HOSTS, SERVICE_ACCOUNT
from infra.storage import RepositoryRef


class GoogleApis(pulumi.ComponentResource):
    """The enabled APIs. They stay enabled after `destroy`, because other users of the project may need them."""

    def __init__(self, name: str, project: str, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:GoogleApis", name, None, opts)
        for api in APIS:
            gcp.projects.Service(
                f"{name}-{api}",
                project=project,
                service=f"{api}.googleapis.com",
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
        self.register_outputs({})


NODE_ROLES = {
    "role": "roles/container.defaultNodeServiceAccount",
    # Image streaming checks whether the node may use the project's services, which the role above does not allow.
    "streaming": "roles/serviceusage.serviceUsageConsumer",
}
"""Roles that the program grants in a project, by name of the grant."""
_WRITER = "roles/storage.objectUser"
_BUCKET_READER = "roles/storage.legacyBucketReader"
"""Orbax and TensorStore read the bucket's metadata, which the role above does not allow. It also lists file names."""
_DATASET_ROLE = "roles/storage.objectViewer"


@dataclass(frozen=True)
class NodeIdentityArgs:
    """Project of the nodes, and the repositories from which they pull images."""

    project: str
    account_id: str
    repository: gcp.artifactregistry.Repository
    foreign_repositories: Mapping[str, RepositoryRef]
    """Other repositories of the project with images of jobs, by name of the grant."""


class NodeIdentity(pulumi.ComponentResource):
    """The service account of all nodes. It may write logs and metrics, and pull and stream images."""

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
    """The accounts of training pods, by name of the grant, and the buckets."""

    members: Mapping[str, pulumi.Output[str]]
    folders: Mapping[str, Sequence[str]]
    """Folders of the checkpoint bucket that each account reads and writes."""
    checkpoints: pulumi.Input[str]
    datasets: str | None


class TrainerAccess(pulumi.ComponentResource):
    """Lets each team's training pods read and write the team's checkpoints, and read data sets.

    A managed folder has its own grants (https://cloud.google.com/storage/docs/managed-folders). The identity pool
    exists only after the project has a cluster with workload identity, so this depends on the cluster.
    """

    def __init__(self, name: str, args: TrainerAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:TrainerAccess", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        managed = {
            # The content of a folder that is no longer managed is kept.
            folder: gcp.storage.ManagedFolder(
                f"{name}-{_flat(folder)}", bucket=args.checkpoints, name=f"{folder}/", force_destroy=True, opts=inside
            )
            for folder in sorted({folder for folders in args.folders.values() for folder in folders})
        }
        for who, member in args.members.items():
            self._grant(f"{name}-{who}-bucket", args.checkpoints, _BUCKET_READER, member)
            for folder in args.folders[who]:
                gcp.storage.ManagedFolderIamMember(
                    f"{name}-{who}_{_flat(folder)}",
                    bucket=args.checkpoints,
                    managed_folder=managed[folder].name,
                    role=_WRITER,
                    member=member,
                    opts=inside,
                )
            if args.datasets:
                self._grant(f"{name}-{who}-datasets", args.datasets, _DATASET_ROLE, member)
        self.register_outputs({})

    def _grant(self, name: str, bucket: pulumi.Input[str], role: str, member: pulumi.Output[str]) -> None:
        inside = pulumi.ResourceOptions(parent=self)
        gcp.storage.BucketIAMMember(name, bucket=bucket, role=role, member=member, opts=inside)


def _flat(folder: str) -> str:
    # Names of jobs, namespaces and teams contain no underscore, so no two folders get the same name.
    return folder.replace("/", "_")


def project_number(project: str, opts: pulumi.InvokeOutputOptions) -> pulumi.Output[str]:
    """Return the number that Google assigned to the project, which is part of the names of identities."""
    return gcp.organizations.get_project_output(project_id=project, opts=opts).apply(lambda found: found.number)


def trainers(
    project: str,
    number: pulumi.Input[str],
    writers: Iterable[str],
    node_account: pulumi.Input[str],
) -> dict[str, pulumi.Output[str]]:
    """Return the accounts of the training pods of these namespaces, and of `ON_HOSTS`.

    Pods on the network of their host act as the node, because the metadata server cannot distinguish the two
    (https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity). So every such pod has this permission,
    in any namespace.
    """
    return {
        who: _service_account(node_account) if who == ON_HOSTS else workload_principal(project, number, who)
        for who in writers
    }


def _service_account(email: pulumi.Input[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat("serviceAccount:", email)


def workload_principal(project: str, number: pulumi.Input[str], namespace: str) -> pulumi.Output[str]:
    """Return the training pods in a namespace as a member of an IAM grant."""
    pool = f"locations/global/workloadIdentityPools/{project}.svc.id.goog"
    return pulumi.Output.concat(
        "principal://iam.googleapis.com/projects/", number, f"/{pool}/subject/ns/{namespace}/sa/{SERVICE_ACCOUNT}"
    )

"""Which APIs the project has on, who nodes and training pods are, and what they may do."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.names import ON_HOSTS, SERVICE_ACCOUNT
from infra.storage import RepositoryPlace

APIS = (
    "artifactregistry",
    "cloudresourcemanager",
    "compute",
    "container",
    # Image streaming: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements
    "containerfilesystem",
    "iam",
    "logging",
    "monitoring",
)
"""Without `.googleapis.com`."""


class GoogleApis(pulumi.ComponentResource):
    """The APIs, switched on."""

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
    # Image streaming asks whether the node may use the project's services, which the role above does not allow.
    "streaming": "roles/serviceusage.serviceUsageConsumer",
}
"""All that the program grants in a project, by the names of the grants."""
_WRITER = "roles/storage.objectUser"
_BUCKET_READER = "roles/storage.legacyBucketReader"
"""Orbax and TensorStore ask for the bucket itself, which the role above does not allow. It lists names of files too."""
_DATASET_ROLE = "roles/storage.objectViewer"


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
    folders: Mapping[str, Sequence[str]]
    """Those of the bucket for checkpoints that each of them reads and writes."""
    checkpoints: pulumi.Output[str]
    datasets: str | None


class TrainerAccess(pulumi.ComponentResource):
    """The right of each team's training pods to read and write the team's checkpoints and to read data sets.

    A managed folder has grants of its own (https://cloud.google.com/storage/docs/managed-folders). The pool of
    identities exists once the project has a cluster with workload identity, so this depends on the cluster.
    """

    def __init__(self, name: str, args: TrainerAccessArgs, opts: pulumi.ResourceOptions) -> None:
        super().__init__("tpu-multislice:infra:TrainerAccess", name, None, opts)
        inside = pulumi.ResourceOptions(parent=self)
        managed = {
            # What lies in a folder that is managed no more stays.
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
    # Names of jobs, namespaces and teams have no such character, so no two folders get the same name.
    return folder.replace("/", "_")


def project_number(project: str, opts: pulumi.InvokeOutputOptions) -> pulumi.Output[str]:
    """The number that Google gave the project; names of identities hold it."""
    return gcp.organizations.get_project_output(project_id=project, opts=opts).apply(lambda found: found.number)


def trainers(
    project: str,
    number: pulumi.Output[str],
    writers: Iterable[str],
    node_account: pulumi.Output[str],
) -> dict[str, pulumi.Output[str]]:
    """Whom the training pods of these namespaces act as, and of `ON_HOSTS`.

    Pods that use the interfaces of their host act as the node, from which the metadata server cannot tell
    them (https://cloud.google.com/kubernetes-engine/docs/concepts/workload-identity). Such a right is that
    of every pod of this kind, in whatever namespace.
    """
    return {
        who: _service_account(node_account) if who == ON_HOSTS else workload_principal(project, number, who)
        for who in writers
    }


def _service_account(email: pulumi.Output[str]) -> pulumi.Output[str]:
    return pulumi.Output.concat("serviceAccount:", email)


def workload_principal(project: str, number: pulumi.Output[str], namespace: str) -> pulumi.Output[str]:
    """The training pods of a namespace, as a member of an IAM grant."""
    pool = f"locations/global/workloadIdentityPools/{project}.svc.id.goog"
    return pulumi.Output.concat(
        "principal://iam.googleapis.com/projects/", number, f"/{pool}/subject/ns/{namespace}/sa/{SERVICE_ACCOUNT}"
    )

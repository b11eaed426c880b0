"""Defines the GitHub environments of the workflows and their rights in the Google Cloud projects of the stacks.

It renders the `gcloud` commands without running them. An account belongs to one stack and has rights only in the
project of that stack: on its state, its key and its resources. Therefore two stacks cannot share a project.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from infra.identity import NODE_ROLES

MAIN = "main"
_PULL_REQUESTS = "refs/pull/*/merge"
"""Branch pattern of an environment that matches the ref of workflow runs on `pull_request`."""
_DRIFT_READER = "driftReader"
_DRIFT_PERMISSIONS = "container.secrets.get,storage.managedFolders.get"
"""Permissions that `multislice drift` needs and that no narrow predefined role has."""
_BUDGET_BRAKE = "budgetBrake"
_BRAKE_PERMISSIONS = "container.thirdPartyObjects.update"
"""Permission that `multislice enforce-budget` needs to stop a queue, and that no role for reading has."""
_POOL, _PROVIDER = "github", "repository"
_SERVICES = ("cloudkms", "iam", "iamcredentials", "sts")
_GRANTS = "roles/resourcemanager.projectIamAdmin"
_ENCRYPTS, _DECRYPTS = "roles/cloudkms.cryptoKeyEncrypterDecrypter", "roles/cloudkms.cryptoKeyDecrypter"
_WRITES_STATE, _READS_STATE = "roles/storage.objectUser", "roles/storage.objectViewer"


class Work(Enum):
    """Task of the jobs of an environment."""

    PREVIEW = "previews"
    DRIFT = "drift"
    DEPLOY = "deployments"
    BUDGET = "budget"


_ROLES = {
    Work.PREVIEW: ("roles/container.viewer", "roles/storage.bucketViewer"),
    Work.DRIFT: (
        "roles/artifactregistry.reader",
        "roles/compute.viewer",
        "roles/container.viewer",
        "roles/iam.securityReviewer",
        "roles/monitoring.notificationChannelViewer",
        "roles/serviceusage.serviceUsageConsumer",
        "roles/storage.bucketViewer",
        f"projects/{{}}/roles/{_DRIFT_READER}",
    ),
    Work.BUDGET: (
        "roles/container.viewer",
        "roles/storage.bucketViewer",
        "roles/storage.objectViewer",
        f"projects/{{}}/roles/{_BUDGET_BRAKE}",
    ),
    Work.DEPLOY: (
        "roles/artifactregistry.admin",
        "roles/compute.admin",
        "roles/container.admin",
        "roles/iam.serviceAccountAdmin",
        "roles/iam.serviceAccountUser",
        "roles/monitoring.notificationChannelEditor",
        _GRANTS,
        "roles/serviceusage.serviceUsageAdmin",
        "roles/storage.admin",
    ),
}
"""Roles in the project, with `{}` in place of its name."""


@dataclass(frozen=True)
class Place:
    """A stack with its project and key."""

    stack: str
    project: str
    key: str
    """Full name of the KMS key that encrypts its secrets."""

    @property
    def state(self) -> str:
        return f"{self.project}-pulumi-state"


@dataclass(frozen=True)
class Environment:
    """A GitHub environment with the service account that its jobs use."""

    name: str
    place: Place
    work: Work
    account_id: str
    branches: tuple[str, ...]
    """Branch patterns. Jobs on other branches cannot use the environment."""
    reviewed: bool
    """Whether a job waits for the approval of a reviewer."""

    @property
    def account(self) -> str:
        """Email address of the service account."""
        return f"{self.account_id}@{self.place.project}.iam.gserviceaccount.com"


@dataclass(frozen=True)
class Command:
    """A `gcloud` command."""

    words: tuple[str, ...]
    makes: bool = False
    """Whether it creates an object that may already exist."""


def environments(places: Sequence[Place], ephemeral: str, unattended: Sequence[str]) -> list[Environment]:
    """Return all environments that the workflows use.

    `ephemeral` is the stack that is copied for pull requests, in the project of that stack. Jobs with code from a
    branch other than `main` need a review. Deployments do too, except of the stacks in `unattended`.
    """
    made: list[Environment] = []
    for place in places:
        both, attended = (MAIN, _PULL_REQUESTS), place.stack not in unattended
        for name, work, branches, reviewed in (
            (f"preview-{place.stack}", Work.PREVIEW, both, True),
            (f"drift-{place.stack}", Work.DRIFT, (MAIN,), False),
            (f"budget-{place.stack}", Work.BUDGET, (MAIN,), False),
            (place.stack, Work.DEPLOY, (MAIN,), attended),
        ):
            made.append(Environment(name, place, work, f"github-{name}", branches, reviewed))
        if place.stack == ephemeral:
            account = "github-ephemeral"
            made.append(Environment("ephemeral", place, Work.DEPLOY, account, both, reviewed=True))
            made.append(Environment("expiry", place, Work.DEPLOY, account, (MAIN,), reviewed=False))
    return made


def prepare_project(project: str, repository_id: int) -> Iterator[Command]:
    """Yield the commands that prepare a project, such as an identity provider that trusts only this repository."""
    inside = ("--project", project)
    yield Command(("services", "enable", *(f"{service}.googleapis.com" for service in _SERVICES), *inside))
    pool = ("iam", "workload-identity-pools")
    everywhere = ("--location", "global", *inside)
    yield Command((*pool, "create", _POOL, *everywhere), makes=True)
    yield Command(
        (
            *(*pool, "providers", "create-oidc", _PROVIDER, *everywhere, "--workload-identity-pool", _POOL),
            *("--issuer-uri", "https://token.actions.githubusercontent.com"),
            *("--attribute-mapping", "google.subject=assertion.sub"),
            *("--attribute-condition", f"assertion.repository_id == '{repository_id}'"),
        ),
        makes=True,
    )
    for name, permissions in ((_DRIFT_READER, _DRIFT_PERMISSIONS), (_BUDGET_BRAKE, _BRAKE_PERMISSIONS)):
        yield Command(("iam", "roles", "create", name, *inside, "--permissions", permissions), makes=True)


def prepare_environment(environment: Environment, number: str, repository: str) -> Iterator[Command]:
    """Yield the commands that create the account, grant its roles and finally let the environment's jobs use it."""
    place = environment.place
    member = ("--member", f"serviceAccount:{environment.account}")
    inside = ("--project", place.project)
    yield Command(("iam", "service-accounts", "create", environment.account_id, *inside), makes=True)
    deploys = environment.work is Work.DEPLOY
    key_role, state_role = (_ENCRYPTS, _WRITES_STATE) if deploys else (_DECRYPTS, _READS_STATE)
    yield Command(("kms", "keys", "add-iam-policy-binding", place.key, "--role", key_role, *member))
    bucket = ("storage", "buckets", "add-iam-policy-binding", f"gs://{place.state}")
    yield Command((*bucket, "--role", state_role, *member))
    for role in (each.format(place.project) for each in _ROLES[environment.work]):
        condition = ("--condition", _BOUND if role == _GRANTS else "None")
        yield Command(("projects", "add-iam-policy-binding", place.project, "--role", role, *member, *condition))
    subject = f"principal://iam.googleapis.com/{_pool(number)}/subject/repo:{repository}:environment:{environment.name}"
    acts = ("iam", "service-accounts", "add-iam-policy-binding", environment.account, *inside)
    yield Command((*acts, "--role", "roles/iam.workloadIdentityUser", "--member", subject))


def variables(environment: Environment, number: str) -> Mapping[str, str]:
    """Return the variables that the environment's jobs read from `vars`."""
    return {
        "WORKLOAD_IDENTITY_PROVIDER": f"{_pool(number)}/providers/{_PROVIDER}",
        "SERVICE_ACCOUNT": environment.account,
        "PULUMI_BACKEND_URL": f"gs://{environment.place.state}",
    }


def _pool(number: str) -> str:
    return f"projects/{number}/locations/global/workloadIdentityPools/{_POOL}"


_BOUND = (
    # A delimiter other than the comma, which the expression contains: https://cloud.google.com/sdk/gcloud/reference/topic/escaping
    "^;^title=roles-of-the-nodes;expression=api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', [])"
    f".hasOnly([{', '.join(repr(role) for role in sorted(NODE_ROLES.values()))}])"
)
"""Lets an account for deployments grant and revoke only the roles of the nodes, so that it cannot become an owner:
https://cloud.google.com/iam/docs/setting-limits-on-granting-roles."""

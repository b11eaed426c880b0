"""Who is granted what in Google Cloud."""

from collections.abc import Iterator

from policy.rule import Declared, ResourceRule, Rule, Severity
from policy.rules.security.about import must
from policy.values import is_known

_MEMBERS = ("gcp:*IAMMember", "gcp:*IamMember")
_LISTS = ("gcp:*IAMBinding", "gcp:*IamBinding", "gcp:*IAMPolicy", "gcp:*IamPolicy")
_WIDE = tuple(
    f"gcp:{level}/iAM{kind}:IAM{kind}"
    for level in ("projects", "folder", "organizations")
    for kind in ("Member", "Binding")
)
_ON_ACCOUNTS = ("gcp:serviceaccount/iAMMember:IAMMember", "gcp:serviceaccount/iAMBinding:IAMBinding")
_EVERYONE = ("allUsers", "allAuthenticatedUsers")
_BROAD_ROLES = {
    "roles/owner",
    "roles/editor",
    "roles/compute.admin",
    "roles/container.admin",
    "roles/container.developer",
    "roles/iam.organizationRoleAdmin",
    "roles/iam.roleAdmin",
    "roles/iam.securityAdmin",
    "roles/iam.serviceAccountAdmin",
    "roles/iam.serviceAccountKeyAdmin",
    "roles/iam.serviceAccountTokenCreator",
    "roles/iam.serviceAccountUser",
    "roles/iam.workloadIdentityPoolAdmin",
    "roles/resourcemanager.projectIamAdmin",
    "roles/storage.admin",
}
"""Those with which one gives oneself any other role of the project, or reads everything in it."""
_FOR_PODS = "roles/iam.workloadIdentityUser"


def _nobody_public(grant: Declared) -> Iterator[str]:
    properties = grant.properties
    for member in (properties.get("member"), *(properties.get("members") or ())):
        # What is not known yet is the address of an account that the program makes.
        if is_known(member) and member in _EVERYONE:
            yield f"expected members that you know, got {member} with {properties.get('role')}"


def _narrow(grant: Declared) -> Iterator[str]:
    role = grant.properties.get("role")
    if role in _BROAD_ROLES:
        yield f"expected a role for one purpose, got {role} on everything in {grant.type.split('/')[0][4:]}"


def _not_anyones(grant: Declared) -> Iterator[str]:
    role = grant.properties.get("role")
    if role in _BROAD_ROLES:
        yield f"expected {_FOR_PODS}, which is for pods and workflows, got {role} on a service account"


def _added(grant: Declared) -> Iterator[str]:
    yield f"expected an IAMMember, which adds one member, got a {grant.type.rpartition(':')[2]}"


def _keyless(key: Declared) -> Iterator[str]:
    yield f"expected no long-lived key, got a {key.type.rpartition(':')[2]}"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        must(
            "no-public-grant",
            Severity.CRITICAL,
            "Nothing is granted to everyone",
            why="A public image, bucket or account is read by strangers within hours.",
            fix="Name the accounts or groups that need the role.",
            link="https://cloud.google.com/iam/docs/principals-overview",
        ),
        (*_MEMBERS, *_LISTS),
        _nobody_public,
    ),
    ResourceRule(
        must(
            "no-broad-role",
            Severity.CRITICAL,
            "No role gives away a whole project",
            why="Whoever gets at one such account has everything, with all that it can grant itself.",
            fix="Grant the narrowest role, on the bucket, repository or account that it is for.",
            link="https://cloud.google.com/iam/docs/using-iam-securely",
        ),
        _WIDE,
        _narrow,
    ),
    ResourceRule(
        must(
            "no-borrowed-account",
            Severity.HIGH,
            "Nobody can act as a service account by a grant on it",
            why="Whoever can create tokens or keys of an account has all its rights, from anywhere.",
            fix=f"Grant {_FOR_PODS} to the pods or workflows that act as it.",
            link="https://cloud.google.com/iam/docs/service-account-permissions",
        ),
        _ON_ACCOUNTS,
        _not_anyones,
    ),
    ResourceRule(
        must(
            "added-grants",
            Severity.HIGH,
            "Grants add a member and leave those of others",
            why="A binding or policy removes every member that it does not list, Google's own agents among them.",
            fix="Use an IAMMember for each member.",
            link="https://www.pulumi.com/registry/packages/gcp/api-docs/projects/iampolicy/",
        ),
        _LISTS,
        _added,
    ),
    ResourceRule(
        must(
            "no-keys",
            Severity.HIGH,
            "Nobody acts with a downloaded key",
            why="A key works from anywhere until someone remembers to revoke it, and it would lie in Pulumi's state.",
            fix="Use workload identity in the cluster, and workload identity federation in CI.",
            link="https://cloud.google.com/iam/docs/best-practices-for-managing-service-account-keys",
        ),
        ("gcp:serviceaccount/key:Key", "gcp:storage/hmacKey:HmacKey", "gcp:projects/apiKey:ApiKey"),
        _keyless,
    ),
)

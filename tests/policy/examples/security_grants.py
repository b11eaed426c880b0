"""What the rules of security on grants and on types are shown."""

from policy.rule import Declared
from tests.policy.example import Example, declared

_PROJECT_MEMBER = "gcp:projects/iAMMember:IAMMember"
_ON_ACCOUNT = "gcp:serviceaccount/iAMMember:IAMMember"


def _grant(member: str, role: str, resource_type: str = _PROJECT_MEMBER) -> Declared:
    properties = {"project": "my-project", "member": member, "role": role}
    return declared(resource_type, role.rpartition("/")[2], properties)


EXAMPLES: dict[str, Example] = {
    "no-public-grant": Example(
        (_grant("group:trainers@example.com", "roles/viewer"),),
        (_grant("allUsers", "roles/viewer"),),
        "got allUsers with roles/viewer",
    ),
    "no-broad-role": Example(
        (_grant("serviceAccount:ci@example.com", "roles/container.viewer"),),
        (_grant("serviceAccount:ci@example.com", "roles/editor"),),
        "got roles/editor on everything in projects",
    ),
    "no-borrowed-account": Example(
        (_grant("serviceAccount:ci@example.com", "roles/iam.workloadIdentityUser", _ON_ACCOUNT),),
        (_grant("group:trainers@example.com", "roles/iam.serviceAccountTokenCreator", _ON_ACCOUNT),),
        "got roles/iam.serviceAccountTokenCreator on a service account",
    ),
    "added-grants": Example(
        (_grant("serviceAccount:ci@example.com", "roles/viewer"),),
        (_grant("serviceAccount:ci@example.com", "roles/viewer", "gcp:projects/iAMBinding:IAMBinding"),),
        "got a IAMBinding",
    ),
    "seen-objects": Example(
        (declared("kubernetes:helm.sh/v4:Chart", "seen-objects", {"chart": "kueue"}),),
        (
            declared("kubernetes:helm.sh/v3:Release", "seen-objects", {"chart": "kueue"}),
            declared("kubernetes:apps/v1:DeploymentPatch", "seen-objects-patch", {}),
            declared("kubernetes:apps/v1:DeploymentList", "seen-objects-list", {}),
        ),
        "got a Release",
    ),
    "no-keys": Example(
        (declared("gcp:serviceaccount/account:Account", "ci", {"accountId": "trainer-ci"}),),
        (declared("gcp:serviceaccount/key:Key", "ci", {"serviceAccountId": "trainer-ci"}),),
        "expected no long-lived key",
    ),
}

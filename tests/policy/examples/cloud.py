"""Plans that keep and break the rules of `policy.rules.cloud`."""

from policy.rule import BILLING_BUDGET, FIREWALL, Declared
from tests.policy.example import Example, declared
from tests.policy.examples.plan import alone, among, bucket, cluster, repository, several, spot_pool, system_pool

_DELETE_BY_AGE = [{"action": {"type": "Delete"}, "condition": {"age": 30}}]
_ON_PROJECT = "gcp:projects/iAMMember:IAMMember"
_ON_ACCOUNT = "gcp:serviceaccount/iAMMember:IAMMember"


def _grant(rule: str, member: str, role: str, resource_type: str = _ON_PROJECT) -> Declared:
    properties = {"project": "my-project", "member": member, "role": f"roles/{role}"}
    return declared(resource_type, f"{rule}-{role}", properties)


def _firewall(name: str) -> Declared:
    return declared(FIREWALL, name, {"sourceRanges": ["10.0.0.0/8"], "allows": [{"protocol": "tcp"}]})


def _budget(name: str) -> Declared:
    properties = {
        "billingAccount": "012345-6789AB-CDEF01",
        "budgetFilter": {"projects": ["projects/123"]},
        "thresholdRules": [{"thresholdPercent": 0.5}],
        "allUpdatesRule": {"disableDefaultIamRecipients": True, "monitoringNotificationChannels": ["channel"]},
    }
    return declared(BILLING_BUDGET, name, properties)


EXAMPLES: dict[str, Example] = {
    "no-public-grant": Example(
        (_grant("no-public-grant", "group:trainers@example.com", "viewer"),),
        (_grant("no-public-grant", "allUsers", "viewer"),),
        "got allUsers with roles/viewer",
    ),
    "no-broad-role": Example(
        (
            _grant("no-broad-role", "serviceAccount:ci@example.com", "container.viewer"),
            _grant("no-broad-role", "serviceAccount:ci@example.com", "iam.workloadIdentityUser", _ON_ACCOUNT),
        ),
        (
            _grant("no-broad-role", "serviceAccount:ci@example.com", "editor"),
            _grant("no-broad-role", "group:trainers@example.com", "iam.serviceAccountTokenCreator", _ON_ACCOUNT),
        ),
        "got roles/editor in a grant of projects",
    ),
    "added-grants": Example(
        (_grant("added-grants", "serviceAccount:ci@example.com", "viewer"),),
        (_grant("added-grants", "serviceAccount:ci@example.com", "viewer", "gcp:projects/iAMBinding:IAMBinding"),),
        "got IAMBinding",
    ),
    "no-keys": Example(
        (declared("gcp:serviceaccount/account:Account", "ci", {"accountId": "trainer-ci"}),),
        (declared("gcp:serviceaccount/key:Key", "ci", {"serviceAccountId": "trainer-ci"}),),
        "expected no such resource, got Key",
    ),
    **alone(
        "no-open-firewall",
        _firewall,
        "got 0.0.0.0/0",
        ("sourceRanges", ["10.0.0.0/8", "0.0.0.0/0"]),
        ("sourceRanges", ["0.0.0.0/1", "128.0.0.0/1"]),
        ("sourceRanges", None),
    ),
    **several(
        "no-public-bucket",
        "enforced, got inherited",
        (bucket, ("publicAccessPrevention", "inherited"), ("uniformBucketLevelAccess", None)),
        also=(declared("gcp:storage/bucketACL:BucketACL", "no-public-bucket", {}),),
    ),
    **alone(
        "bucket-keeps-checkpoints",
        bucket,
        "expected forceDestroy to be something other than true",
        ("forceDestroy", True),
        ("softDeletePolicy.retentionDurationSeconds", 0),
        ("lifecycleRules", _DELETE_BY_AGE),
    ),
    **among("bucket-region", (bucket, spot_pool), "location", "EUROPE-WEST4", "(us-east5), got europe-west4"),
    **several(
        "storage-cleaned-up",
        "at most 30 days, got 31",
        (bucket, ("softDeletePolicy.retentionDurationSeconds", 31 * 24 * 60 * 60), ("lifecycleRules", None)),
        (repository, ("cleanupPolicies", None), ("cleanupPolicyDryRun", True)),
    ),
    **several(
        "labels-for-billing",
        "expected labels to be set, got nothing",
        (bucket, ("labels", None)),
        (repository, ("labels", None)),
        (cluster, ("resourceLabels", None)),
        (system_pool, ("nodeConfig.resourceLabels", {})),
    ),
    **alone(
        "budget-alerts",
        _budget,
        "which means all projects of the account",
        ("budgetFilter", None),
        ("thresholdRules", [{"thresholdPercent": 1.5}]),
        ("allUpdatesRule.monitoringNotificationChannels", []),
    ),
}

"""Rules on Google Cloud resources outside the cluster: grants, firewalls, buckets and images."""

from collections.abc import Iterator, Sequence

from policy.rule import (
    BILLING_BUDGET,
    BUCKET,
    CLUSTER,
    FIREWALL,
    NODE_POOL,
    REPOSITORY,
    Declared,
    ResourceRule,
    Rule,
    StackRule,
    Violation,
    at,
    every,
    is_known,
    must_be,
    must_be_set,
    must_not_be,
    select_type,
)
from policy.rules.cluster import is_everywhere
from policy.slices import is_tpu

_MEMBERS = ("gcp:*IAMMember", "gcp:*IamMember")
_LISTS = ("gcp:*IAMBinding", "gcp:*IamBinding", "gcp:*IAMPolicy", "gcp:*IamPolicy")
_ON_WHOLES = tuple(
    f"gcp:{scope}/iAM{kind}:IAM{kind}"
    for scope in ("projects", "folder", "organizations", "serviceaccount")
    for kind in ("Member", "Binding")
)
_KEYS = ("gcp:serviceaccount/key:Key", "gcp:storage/hmacKey:HmacKey", "gcp:projects/apiKey:ApiKey")
_ACLS = ("gcp:storage/*ACL:*", "gcp:storage/*AccessControl:*")
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
"""Roles with which an account can grant itself any other role, act as other accounts, or read everything."""
_NARROWER_SOURCES = ("srcSecureTags", "srcAddressGroups", "srcNetworks")
"""Sources of a rule of a firewall policy other than ranges."""
_MAX_SOFT_DELETE_DAYS = 30
_SECONDS_PER_DAY = 24 * 60 * 60


def _not_public(grant: Declared) -> Iterator[str]:
    properties = grant.properties
    for member in (properties.get("member"), *(properties.get("members") or ())):
        # The address of an account that the program creates is not known yet.
        if is_known(member) and member in ("allUsers", "allAuthenticatedUsers"):
            yield f"expected members that you know, got {member} with {properties.get('role')}"


def _narrow(grant: Declared) -> Iterator[str]:
    if (role := grant.properties.get("role")) in _BROAD_ROLES:
        yield f"expected a role for one purpose, got {role} in a grant of {grant.type.split('/')[0][4:]}"


def _refused(resource: Declared) -> Iterator[str]:
    yield f"expected no such resource, got {resource.type.rpartition(':')[2]}"


def _closed_firewall(rule: Declared) -> Iterator[str]:
    properties = rule.properties
    incoming = properties.get("direction", "INGRESS") == "INGRESS" and properties.get("allows")
    if incoming and not properties.get("disabled"):
        narrowed = any(properties.get(key) for key in ("sourceTags", "sourceServiceAccounts"))
        yield from _known_sources(every(properties, "sourceRanges"), narrowed)


def _closed_policy(rule: Declared) -> Iterator[str]:
    incoming = [at(rule.properties, key) for key in ("direction", "action")] == ["INGRESS", "allow"]
    if incoming and not at(rule.properties, "disabled"):
        match = at(rule.properties, "match")
        yield from _known_sources(every(match, "srcIpRanges"), any(at(match, key) for key in _NARROWER_SOURCES))


def _known_sources(sources: list[str], narrowed: bool) -> Iterator[str]:
    if not sources and not narrowed:
        yield "expected sources that you know, got nothing, which means everyone"
    for source in sources:
        if is_everywhere(source):
            yield f"expected sources that you know, got {source}"


def _kept(bucket: Declared) -> Iterator[str]:
    yield from must_not_be("forceDestroy", True)(bucket)
    # Cloud Storage's default is seven days.
    yield from must_not_be("softDeletePolicy.retentionDurationSeconds", 0)(bucket)
    for rule in every(bucket.properties, "lifecycleRules"):
        condition = at(rule, "condition")
        prefixes = every(condition, "matchesPrefixes")
        if at(rule, "action", "type") == "Delete" and (not prefixes or "" in prefixes):
            yield f"expected no rule that deletes objects of any name, got one by {', '.join(condition or ())}"


def _near(resources: Sequence[Declared]) -> Iterator[Violation]:
    pools = [pool for pool in select_type(resources, NODE_POOL) if is_tpu(pool)]
    # A location is a region, or a zone such as `us-east5-b`.
    regions = {"-".join(location.split("-")[:2]) for pool in pools if (location := at(pool.properties, "location"))}
    for bucket in select_type(resources, BUCKET):
        location = at(bucket.properties, "location")
        if regions and location is not None and location.lower() not in regions:
            message = f"expected the region of the slices ({', '.join(sorted(regions))}), got {location.lower()}"
            yield Violation(message, bucket.urn)


def _cleaned_bucket(bucket: Declared) -> Iterator[str]:
    days = (at(bucket.properties, "softDeletePolicy", "retentionDurationSeconds") or 0) / _SECONDS_PER_DAY
    if days > _MAX_SOFT_DELETE_DAYS:
        yield f"expected softDeletePolicy of at most {_MAX_SOFT_DELETE_DAYS} days, got {days:g}"
    actions = [at(rule, "action", "type") for rule in every(bucket.properties, "lifecycleRules")]
    if "AbortIncompleteMultipartUpload" not in actions:
        yield "expected a lifecycle rule AbortIncompleteMultipartUpload, got nothing"


def _cleaned_repository(repository: Declared) -> Iterator[str]:
    actions = [at(policy, "action") for policy in every(repository.properties, "cleanupPolicies")]
    if "DELETE" not in actions or at(repository.properties, "cleanupPolicyDryRun"):
        yield "expected a clean-up policy that deletes images, got nothing"


def _alerts(budget: Declared) -> Iterator[str]:
    if not every(budget.properties, "budgetFilter", "projects"):
        yield "expected budgetFilter.projects to be set, got nothing, which means all projects of the account"
    thresholds = [at(rule, "thresholdPercent") for rule in every(budget.properties, "thresholdRules")]
    if not any(percent <= 1 for percent in thresholds):
        yield "expected an alert at or before 100 % of the amount, got none"
    rule = at(budget.properties, "allUpdatesRule")
    channels = rule and (at(rule, "monitoringNotificationChannels") or at(rule, "pubsubTopic"))
    if at(rule, "disableDefaultIamRecipients") and not channels:
        yield "expected someone to alert, got no channel and no default recipients"


RULES: tuple[Rule, ...] = (
    ResourceRule(
        id="no-public-grant",
        severity="critical",
        title="Nothing is granted to everyone",
        why="Strangers find a public image, bucket or account within hours.",
        fix="Name the accounts or groups that need the role.",
        link="https://cloud.google.com/iam/docs/principals-overview",
        checks=dict.fromkeys((*_MEMBERS, *_LISTS), _not_public),
    ),
    ResourceRule(
        id="no-broad-role",
        severity="critical",
        title="No role gives away a whole project or lets others act as a service account",
        why="One such account that is lost gives access to everything, including what it can grant itself.",
        fix="Grant the narrowest role on one bucket or repository, and on a service account only"
        " roles/iam.workloadIdentityUser to the pods or workflows that act as it.",
        link="https://cloud.google.com/iam/docs/using-iam-securely",
        checks=dict.fromkeys(_ON_WHOLES, _narrow),
        replaces=("no-borrowed-account",),
    ),
    ResourceRule(
        id="added-grants",
        severity="high",
        title="Grants add one member and keep the members that others have granted",
        why="A binding or policy removes every member that it does not list, including Google's own agents.",
        fix="Use an IAMMember for each member.",
        link="https://www.pulumi.com/registry/packages/gcp/api-docs/projects/iampolicy/",
        checks=dict.fromkeys(_LISTS, _refused),
    ),
    ResourceRule(
        id="no-keys",
        severity="high",
        title="There are no downloaded keys",
        why="A key works from anywhere until someone revokes it, and Pulumi's state contains it.",
        fix="Use workload identity in the cluster, and workload identity federation in CI.",
        link="https://cloud.google.com/iam/docs/best-practices-for-managing-service-account-keys",
        checks=dict.fromkeys(_KEYS, _refused),
    ),
    ResourceRule(
        id="no-open-firewall",
        severity="critical",
        title="No firewall rule lets everyone in",
        why="The hosts of a slice talk to each other without passwords.",
        fix="Name source ranges, tags or service accounts that you know.",
        link="https://cloud.google.com/firewall/docs/firewalls",
        checks={FIREWALL: _closed_firewall, "gcp:compute/*irewallPolicyRule:*": _closed_policy},
    ),
    ResourceRule(
        id="no-public-bucket",
        severity="critical",
        title="A bucket cannot be made public, and only IAM says who reads it",
        why="After one wrong grant everyone could read weights and data, and no review sees access lists of objects.",
        fix="Set publicAccessPrevention to enforced and uniformBucketLevelAccess to true, and grant roles with"
        " BucketIAMMember.",
        link="https://cloud.google.com/storage/docs/public-access-prevention",
        checks={
            BUCKET: (must_be("publicAccessPrevention", "enforced"), must_be("uniformBucketLevelAccess", True)),
            **dict.fromkeys(_ACLS, _refused),
        },
        replaces=("uniform-bucket-access",),
    ),
    ResourceRule(
        id="bucket-keeps-checkpoints",
        severity="critical",
        title="A bucket does not lose checkpoints",
        why="The provider empties a bucket with forceDestroy before it deletes it, deletion by age removes parts of the"
        " newest complete checkpoint, and without soft delete nothing that was deleted can be restored.",
        fix="Leave forceDestroy false and soft delete at 604800 seconds or more, and give every rule that deletes a"
        " matchesPrefixes; job.training.keep_checkpoints cleans up.",
        link="https://cloud.google.com/storage/docs/soft-delete",
        checks={BUCKET: _kept},
        replaces=("bucket-not-emptied", "recoverable-objects"),
    ),
    StackRule(
        id="bucket-region",
        severity="medium",
        title="Buckets are in the region of the slices",
        why="Otherwise every save and restore crosses regions, which is slower and billed by the gigabyte.",
        fix="Give the bucket cloud.region as its location.",
        link="https://cloud.google.com/storage/docs/locations",
        check=_near,
    ),
    ResourceRule(
        id="storage-cleaned-up",
        severity="medium",
        level="advisory",
        title="Deleted checkpoints, unfinished uploads and old images are not billed forever",
        why="The trainer deletes most checkpoints that it writes, hosts that die while they save leave parts that no"
        " listing shows, and every build adds an image of some gigabytes.",
        fix=f"Set softDeletePolicy to {_MAX_SOFT_DELETE_DAYS} days or less, and keep the lifecycle rule and the"
        " clean-up policies of infra.storage.",
        link="https://cloud.google.com/storage/docs/lifecycle",
        checks={BUCKET: _cleaned_bucket, REPOSITORY: _cleaned_repository},
        replaces=("soft-delete-ends", "uploads-end", "images-go"),
    ),
    ResourceRule(
        id="labels-for-billing",
        severity="medium",
        title="Everything that is billed and can have labels has labels",
        why="Otherwise the bill does not show whose chips, disks and buckets it lists (CKV_GCP_21).",
        fix="Pass settings.resource_labels to the resource, and add your own under labels.",
        link="https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels",
        checks={
            CLUSTER: must_be_set("resourceLabels"),
            NODE_POOL: must_be_set("nodeConfig.resourceLabels"),
            BUCKET: must_be_set("labels"),
            REPOSITORY: must_be_set("labels"),
        },
    ),
    ResourceRule(
        id="budget-alerts",
        severity="medium",
        title="A billing budget counts the project and alerts people before it is used up",
        why="A budget without a filter counts all projects of the account, and one that alerts no one, or only later,"
        " looks like a limit and is none.",
        fix="Declare it with budget.alerts of the stack file, or set budgetFilter.projects, a threshold of 1.0 or less"
        " and recipients.",
        link="https://cloud.google.com/billing/docs/how-to/budgets",
        checks={BILLING_BUDGET: _alerts},
    ),
)

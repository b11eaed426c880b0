"""Who asks, and what the cluster and the bucket allow."""

import os
from typing import Any

from cli.doctor.check import Findings, Scope, fault, not_asked, ok
from cli.doctor.google import NotAsked, NotLoggedIn, token
from infra.names import JOBSET_GROUP
from workloads.report.command import answering, faults_of_storage

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROVIDER_VARIABLES = (
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
)
"""Which Pulumi's provider takes ahead of the application default
(https://www.pulumi.com/registry/packages/gcp/installation-configuration)."""
_RIGHTS = (
    ("submit jobs", JOBSET_GROUP, "jobsets", "create"),
    ("cancel jobs", JOBSET_GROUP, "jobsets", "delete"),
)
"""In words; API group, resource and verb."""


def stack(scope: Scope) -> Findings:
    """Whether the stack stands and its cluster takes the credentials."""
    if scope.deployed is None:
        says, _, fix = scope.missing.partition("\n")
        yield fault("stack", says, fix or f"pulumi up --stack {scope.stack}")
        return
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    name = scope.api.request("POST", _REVIEWS, review)["status"]["userInfo"]["username"]
    yield ok("cluster", f"it knows this user as {name}")


def rights(scope: Scope) -> Findings:
    """What this user may do to the stack's jobs."""
    for namespace in sorted({job.namespace for job in scope.standing.jobs}):
        may = {words: _allowed(scope, namespace, *asked) for words, *asked in _RIGHTS}
        said = f"may {', '.join(words for words, allowed in may.items() if allowed) or 'do nothing'}"
        refused = [words for words, allowed in may.items() if not allowed]
        said += f"; may not {', '.join(refused)}" if refused else ""
        subject = f"namespace {namespace}"
        if may[_RIGHTS[0][0]]:
            yield ok(subject, said)
        else:
            yield fault(
                subject, said, f"become a member of the team of {namespace}: teams.NAME.members, then `pulumi up`"
            )


def bucket(scope: Scope) -> Findings:
    """Whether the checkpoints can be read."""
    storage = scope.standing.storage
    try:
        found = answering(storage).exists()
    except ImportError as error:
        yield not_asked("bucket", f"reading gs:// takes the package gcsfs: {error}")
    except faults_of_storage() as error:
        yield fault("bucket", f"{storage}: {error}", "gcloud auth application-default login")
    else:
        if found:
            yield ok("bucket", f"{storage} can be read")
        else:
            yield fault("bucket", f"{storage} is not there", f"pulumi up --refresh --stack {scope.stack}")


def gcloud(scope: Scope) -> Findings:
    """Whether Google Cloud takes the credentials of gcloud."""
    if isinstance(scope.google, NotLoggedIn):
        yield fault("gcloud", str(scope.google), "gcloud auth login")
        return
    found = scope.in_google()
    found.get("cloudresourcemanager", f"/v1/projects/{found.project}")
    yield ok("gcloud", f"project {found.project} can be read")


def application_default(scope: Scope) -> Findings:
    """Whether Pulumi's provider finds credentials, which are not those of gcloud."""
    if isinstance(scope.google, NotAsked) and not isinstance(scope.google, NotLoggedIn):
        raise scope.google
    if given := [name for name in _PROVIDER_VARIABLES if os.environ.get(name)]:
        yield ok("application default", f"Pulumi's provider takes those of {given[0]}")
        return
    try:
        token("auth", "application-default")
    except NotLoggedIn as why:
        yield fault("application default", str(why), "gcloud auth application-default login")
    else:
        yield ok("application default", "Pulumi's provider has credentials")


def billing(scope: Scope) -> Findings:
    """Whether the project can pay for what the stack makes."""
    found = scope.in_google()
    if found.get("cloudbilling", f"/v1/projects/{found.project}/billingInfo").get("billingEnabled"):
        yield ok("billing", f"project {found.project} has a billing account")
    else:
        fix = f"gcloud billing projects link {found.project} --billing-account ACCOUNT"
        yield fault("billing", f"project {found.project} has no billing account", fix)


def _allowed(scope: Scope, namespace: str, group: str, resource: str, verb: str) -> bool:
    plural, _, sub = resource.partition("/")
    wanted: dict[str, Any] = {"namespace": namespace, "group": group, "resource": plural, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {**wanted, **({"subresource": sub} if sub else {})}},
    }
    return scope.api.request("POST", _ACCESS, review)["status"]["allowed"]

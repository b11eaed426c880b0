"""Checks the credentials of this user, what they allow, and which APIs are available."""

import os

from cli.doctor.checks import Findings, NotAsked, NotLoggedIn, Scope, failed, judge, ok, skipped, token
from infra.cluster.kubernetes import FORBIDDEN, ApiError, right
from infra.stack.command_lines import command_line, installing
from infra.stack.names import (
    APIS,
    EVENTS,
    FLAVORS,
    JOBS,
    JOBSET_API_VERSION,
    JOBSET_GROUP,
    JOBSETS,
    KUEUE_API_VERSION,
    KUEUE_GROUP,
    LOCAL_QUEUES,
    NODES,
    PODS,
    QUEUES,
    WORKLOADS,
    everywhere,
)
from workloads.report.command import answering, faults_of_storage

_REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_ACCESS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PROVIDER_VARIABLES = (
    "GOOGLE_CREDENTIALS",
    "GOOGLE_CLOUD_KEYFILE_JSON",
    "GCLOUD_KEYFILE_JSON",
    "GOOGLE_OAUTH_ACCESS_TOKEN",
)
"""Variables that Pulumi's provider prefers over the application default credentials
(https://www.pulumi.com/registry/packages/gcp/installation-configuration)."""
_RIGHTS = (("submit jobs", JOBSET_GROUP, "jobsets", "create"), ("cancel jobs", JOBSET_GROUP, "jobsets", "delete"))
"""Description, API group, resource and verb of each right."""
_GROUPS = {"JobSet": (JOBSET_GROUP, JOBSET_API_VERSION), "Kueue": (KUEUE_GROUP, KUEUE_API_VERSION)}
_OF_JOBS = (JOBSETS, WORKLOADS, JOBS, PODS, EVENTS, LOCAL_QUEUES)
_OF_CLUSTER = (everywhere(WORKLOADS), QUEUES, FLAVORS, NODES)
_MAX_SERVICES = "200"


def stack_file(scope: Scope) -> Findings:
    """Check that the stack file can be read."""
    if scope.settings is None:
        says, *_ = scope.unread.splitlines()
        yield failed("stack file", says, f"see all its errors: {command_line('review', scope.stack)}")


def stack(scope: Scope) -> Findings:
    """Check that the stack is deployed and that its cluster accepts the credentials."""
    if scope.deployed is None and isinstance(scope.missing, str):
        says, _, fix = scope.missing.partition("\n")
        yield failed("stack", says, fix or scope.update())
        return
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    name = scope.api.request("POST", _REVIEWS, review)["status"]["userInfo"]["username"]
    yield ok("cluster", f"this user is {name}")


def rights(scope: Scope) -> Findings:
    """Check what this user may do to the stack's jobs, or which objects of a foreign cluster this user may read."""
    if scope.up.foreign:
        namespace = scope.up.foreign.namespace
        for subject, paths in (("jobs", [path.format(namespace) for path in _OF_JOBS]), ("cluster", _OF_CLUSTER)):
            if refused := [right(path) for path in paths if not _may_list(scope, path)]:
                said = f"you may not {' or '.join(refused)}"
                yield failed(subject, said, "ask for these rights: commands leave out what they cannot read")
            else:
                yield ok(subject, f"may list all {len(paths)} kinds of objects that commands read")
        return
    for namespace in sorted({job.namespace for job in scope.up.jobs}):
        may = {words: _allowed(scope, namespace, *asked) for words, *asked in _RIGHTS}
        said = f"may {', '.join(words for words, allowed in may.items() if allowed) or 'do nothing'}"
        refused = [words for words, allowed in may.items() if not allowed]
        said += f"; may not {', '.join(refused)}" if refused else ""
        fix = f"become a member of the team of {namespace}: teams.NAME.members, then `{scope.update()}`"
        yield judge(f"namespace {namespace}", said, passes=may[_RIGHTS[0][0]], fix=fix)


def _may_list(scope: Scope, path: str) -> bool:
    try:
        scope.api.find(scope.up.served(path), {"limit": "1"})
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return False
    return True


def bucket(scope: Scope) -> Findings:
    """Check that the checkpoints can be read."""
    storage = scope.up.storage
    try:
        found = answering(storage).exists()
    except ImportError as error:
        yield skipped("bucket", f"reading gs:// needs gcsfs ({error}); install it with {installing('gs')}")
    except faults_of_storage() as error:
        yield failed("bucket", f"{storage}: {error}", "gcloud auth application-default login")
    else:
        if found:
            yield ok("bucket", f"{storage} can be read")
        else:
            yield failed("bucket", f"{storage} is missing", scope.update("--refresh"))


def gcloud(scope: Scope) -> Findings:
    """Check that Google Cloud accepts the credentials of gcloud."""
    if isinstance(scope.google, NotLoggedIn):
        yield failed("gcloud", str(scope.google), "gcloud auth login")
        return
    found = scope.in_google()
    found.get("cloudresourcemanager", f"/v1/projects/{found.project}")
    yield ok("gcloud", f"project {found.project} can be read")


def application_default(scope: Scope) -> Findings:
    """Check that Pulumi's provider finds credentials. It does not use those of gcloud."""
    if isinstance(scope.google, NotAsked) and not isinstance(scope.google, NotLoggedIn):
        raise scope.google
    if given := [name for name in _PROVIDER_VARIABLES if os.environ.get(name)]:
        yield ok("application default", f"Pulumi's provider uses the credentials in {given[0]}")
        return
    try:
        token("auth", "application-default")
    except NotLoggedIn as why:
        yield failed("application default", str(why), "gcloud auth application-default login")
    else:
        yield ok("application default", "Pulumi's provider has credentials")


def billing(scope: Scope) -> Findings:
    """Check that the project has a billing account."""
    found = scope.in_google()
    if found.get("cloudbilling", f"/v1/projects/{found.project}/billingInfo").get("billingEnabled"):
        yield ok("billing", f"project {found.project} has a billing account")
    else:
        fix = f"gcloud billing projects link {found.project} --billing-account ACCOUNT"
        yield failed("billing", f"project {found.project} has no billing account", fix)


def _allowed(scope: Scope, namespace: str, group: str, resource: str, verb: str) -> bool:
    wanted = {"namespace": namespace, "group": group, "resource": resource, "verb": verb}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": wanted},
    }
    return scope.api.request("POST", _ACCESS, review)["status"]["allowed"]


def kinds(scope: Scope) -> Findings:
    """Check that the cluster serves the APIs of JobSet and Kueue."""
    for name, (_, version) in _GROUPS.items():
        if scope.api.find(f"/apis/{version}") is None:
            yield failed(name, f"the cluster does not serve {version}", scope.update("--refresh"))
        else:
            yield ok(name, f"the cluster serves {version}")


def apis(scope: Scope) -> Findings:
    """Check that a foreign cluster serves the APIs of JobSet and Kueue, and in which versions."""
    for name, (group, newest) in _GROUPS.items():
        found = scope.api.find(f"/apis/{group}")
        served = [each["groupVersion"].rpartition("/")[2] for each in (found or {}).get("versions", [])]
        install = f"https://{name.lower()}.sigs.k8s.io/docs/installation"
        if found is None:
            yield failed(name, f"the cluster does not serve the API group {group}", f"install it: {install}")
        elif name == "Kueue" and scope.up.foreign and not scope.up.foreign.kueue:
            said = f"serves {', '.join(served) or 'no version'}, which this program does not read"
            yield failed(name, said, f"upgrade it: {install}")
        else:
            older = "" if newest.rpartition("/")[2] in served or not served else ", an older one"
            yield ok(name, f"serves {', '.join(served) or newest}{older}")


def services(scope: Scope) -> Findings:
    """Check that the services that the stack needs are enabled in the project."""
    google = scope.in_google()
    path, query = f"/v1/projects/{google.project}/services", {"filter": "state:ENABLED", "pageSize": _MAX_SERVICES}
    enabled: set[str] = set()
    while True:
        page = google.get("serviceusage", path, query)
        enabled |= {each["config"]["name"].removesuffix(".googleapis.com") for each in page.get("services", [])}
        if not (token := page.get("nextPageToken")):
            break
        query = {**query, "pageToken": token}
    off = [api for api in APIS if api not in enabled]
    if off:
        names = " ".join(f"{api}.googleapis.com" for api in off)
        fix = f"gcloud services enable {names} --project {google.project}"
        yield failed("services", f"not enabled: {', '.join(off)}", fix)
    else:
        yield ok("services", f"all {len(APIS)} are enabled")

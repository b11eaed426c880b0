"""The APIs that the stack needs: kinds of the cluster, services of the project."""

from cli.doctor.check import Findings, Scope, fault, ok
from infra.names import JOBSET_API_VERSION, KUEUE_API_VERSION

_GROUPS = {"JobSet": JOBSET_API_VERSION, "Kueue": KUEUE_API_VERSION}
_MOST_SERVICES = "200"


def kinds(scope: Scope) -> Findings:
    """Whether the cluster has the kinds of JobSet and Kueue."""
    for name, version in _GROUPS.items():
        if scope.api.find(f"/apis/{version}") is None:
            yield fault(name, f"the cluster does not serve {version}", f"pulumi up --refresh --stack {scope.stack}")
        else:
            yield ok(name, f"the cluster serves {version}")


def services(scope: Scope) -> Findings:
    """Whether the project has the services on."""
    # Imports Pulumi's SDK.
    from infra.identity import APIS

    google = scope.in_google()
    path, query = f"/v1/projects/{google.project}/services", {"filter": "state:ENABLED", "pageSize": _MOST_SERVICES}
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
        yield fault("services", f"off: {', '.join(off)}", f"gcloud services enable {names} --project {google.project}")
    else:
        yield ok("services", f"all {len(APIS)} are on")

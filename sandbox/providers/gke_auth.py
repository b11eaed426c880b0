"""`gke-gcloud-auth-plugin` of the sandbox: a token of the administrator in place of Google's.

The kubeconfig of a GKE cluster names that program; kubectl and the kubernetes plugin run it.
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import json
from datetime import UTC, datetime, timedelta

from sandbox import site

_LIFETIME = timedelta(minutes=6)
"""Short, so that clients must ask again: those in Python do so five minutes before a token ends, here after one.
The API server takes the token for longer."""


def credential(here: site.Site) -> str:
    """The ExecCredential of the site's administrator, as JSON."""
    ends = datetime.now(UTC) + _LIFETIME
    status = {
        "token": (here.pki / "admin.token").read_text(),
        "expirationTimestamp": ends.strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    return json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
    )


if __name__ == "__main__":
    print(credential(site.from_environment()))  # noqa: T201 - its output is its purpose

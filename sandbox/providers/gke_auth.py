"""`gke-gcloud-auth-plugin` of the sandbox: the administrator's certificate in place of a Google token.

The kubeconfig of a GKE cluster names that program; kubectl and the kubernetes plugin run it.
https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import json

from sandbox import site


def credential(here: site.Site) -> str:
    """The ExecCredential of the site's administrator, as JSON."""
    status = {
        "clientCertificateData": (here.pki / "admin.crt").read_text(),
        "clientKeyData": (here.pki / "admin.key").read_text(),
    }
    return json.dumps(
        {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
    )


if __name__ == "__main__":
    print(credential(site.from_environment()))  # noqa: T201 - its output is its purpose

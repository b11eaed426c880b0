"""Who one is to a cluster, as the Kubernetes clients read it.

Imports nothing of Pulumi, so that commands which only look at a cluster need not load it.
"""

import json

_CREDENTIAL_PLUGIN = "gke-gcloud-auth-plugin"


def kubeconfig(endpoint: str) -> str:
    """A kubeconfig without secrets: the gcloud plugin fetches a token on each use.

    It names no certificate authority: the DNS endpoint's certificate is a public one.
    """
    name = "cluster"
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": _CREDENTIAL_PLUGIN,
        "installHint": f"run `gcloud components install {_CREDENTIAL_PLUGIN}`",
        "interactiveMode": "Never",
        "provideClusterInfo": True,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": f"https://{endpoint}"}}],
            "users": [{"name": name, "user": {"exec": plugin}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )

"""Whether the name of the cluster is known here, and its name servers are ready."""

import socket
from urllib.parse import urlsplit

from cli.doctor.check import Findings, Scope, fault, not_asked, ok
from cli.observed.objects import is_true


def endpoint(scope: Scope) -> Findings:
    """Whether the cluster's name is known here."""
    host = urlsplit(scope.standing.api.url).hostname or ""
    try:
        found = socket.getaddrinfo(host, None)[0][4][0]
    except OSError as error:
        yield fault("endpoint", f"{host}: {error}", "look at this machine's resolver: /etc/resolv.conf")
    else:
        yield ok("endpoint", f"{host} is {found}")


def servers(scope: Scope) -> Findings:
    """Whether the cluster has a name server that is ready."""
    if scope.sandbox:
        yield not_asked("cluster", "names of pods are in their hosts file here")
        return
    pods = scope.api.request("GET", "/api/v1/namespaces/kube-system/pods", query={"labelSelector": "k8s-app=kube-dns"})
    ready = [pod for pod in pods["items"] if is_true(pod, "Ready")]
    if ready:
        yield ok("cluster", f"{len(ready)} of {len(pods['items'])} name servers are ready")
    else:
        yield fault("cluster", "no name server is ready", "kubectl describe pods -n kube-system -l k8s-app=kube-dns")

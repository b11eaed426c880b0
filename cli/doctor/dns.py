"""Names: of the cluster from here, of hosts from hosts."""

import socket
from urllib.parse import urlsplit

from cli.control.host import container, running_hosts
from cli.control.job import Job, State
from cli.doctor.check import Check, Findings, Scope, fault, not_asked, ok
from cli.observed.objects import is_true
from infra.kubernetes import Json
from infra.names import COORDINATOR_LABEL
from infra.remote_command import NotStarted, run

_LOOK = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
_SECONDS = 30.0


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


def coordinator(scope: Scope) -> Findings:
    """Whether a host of each job that runs finds the job's first host."""
    for place in scope.standing.jobs:
        job = Job.find(scope.api, place)
        hosts = running_hosts(job) if job and job.state is State.RUNNING else {}
        if job and hosts:
            yield _found(job, *min(hosts.items()))
        else:
            yield not_asked(f"job {place.name}", "it does not run")


def _found(job: Job, host: str, pod: Json) -> Check:
    """Whether a host finds the address by which all hosts meet."""
    place, name = job.place, pod["metadata"]["labels"].get(COORDINATOR_LABEL, "")
    subject, fix = f"job {place.name}", f"kubectl get service {place.name} -n {place.namespace}"
    try:
        ended = run(job.api, container(job, host), ("python", "-c", _LOOK, name), timeout_seconds=_SECONDS)
    except NotStarted as error:
        return not_asked(subject, f"its container has no Python: {error}")
    except TimeoutError:
        return fault(subject, f"{host} has not found {name} within {_SECONDS:.0f} s", fix)
    if ended.exit_code:
        last = "".join(ended.errors.decode(errors="replace").strip().splitlines()[-1:])
        return fault(subject, f"{host} does not find {name}: {last}", fix)
    return ok(subject, f"{name} is {ended.output.decode().strip()}")

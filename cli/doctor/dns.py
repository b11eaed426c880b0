"""Names: of the cluster from here, of hosts from hosts."""

import socket
from urllib.parse import urlsplit

from cli.control.host import container
from cli.control.job import Job, State
from cli.doctor.check import Findings, Scope, fault, not_asked, ok
from cli.observed.objects import is_true
from cli.observed.pod import LEADER
from infra.remote_command import NotStarted, run

_COORDINATOR = "jobset.sigs.k8s.io/coordinator"
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
        job, subject = Job.find(scope.api, place), f"job {place.name}"
        running = [pod for pod in job.pods() if pod["status"].get("phase") == "Running"] if job else []
        if job is None or job.state is not State.RUNNING or not running:
            yield not_asked(subject, "it does not run")
            continue
        name = running[0]["metadata"]["labels"].get(_COORDINATOR, "")
        where = container(job, LEADER)
        try:
            ended = run(scope.api, where, ("python", "-c", _LOOK, name), timeout_seconds=_SECONDS)
        except NotStarted as error:
            yield not_asked(subject, f"its container has no Python: {error}")
            continue
        if ended.exit_code:
            told = f"{LEADER} does not find {name}: {ended.errors.decode(errors='replace').strip().splitlines()[-1:]}"
            yield fault(subject, told, f"kubectl get service {place.name} -n {place.namespace}")
        else:
            yield ok(subject, f"{name} is {ended.output.decode().strip()}")

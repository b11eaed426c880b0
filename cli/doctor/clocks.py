"""Clocks: of this machine, of the API server, of the nodes."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from cli.doctor.check import Findings, Scope, fault, ok
from cli.doctor.google import NotAsked
from cli.observed.objects import is_true
from infra.names import NODES

_HERE_SECONDS = 10.0
"""Tokens and signatures allow for some minutes; a clock that is synchronised is off by far less."""
_NODE_SECONDS = 60.0
"""Nodes renew their lease every 10 seconds."""
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def here(scope: Scope) -> Findings:
    """Whether this machine and the API server agree."""
    ahead = (datetime.now(UTC) - _now(scope)).total_seconds()
    told = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the API server"
    if abs(ahead) > _HERE_SECONDS:
        yield fault("this machine", told, "sudo timedatectl set-ntp true")
    else:
        yield ok("this machine", told)


def nodes(scope: Scope) -> Findings:
    """Whether the nodes and the API server agree, by the leases of those that are ready."""
    now = _now(scope)
    ready = {node["metadata"]["name"] for node in scope.listed(NODES) if is_true(node, "Ready")}
    renewed = {
        lease["metadata"]["name"]: datetime.fromisoformat(lease["spec"]["renewTime"])
        for lease in scope.listed(_LEASES)
        if lease["metadata"]["name"] in ready and lease["spec"].get("renewTime")
    }
    off = {name: (now - then).total_seconds() for name, then in renewed.items()}
    wrong = {name: seconds for name, seconds in off.items() if abs(seconds) > _NODE_SECONDS}
    if wrong:
        name, seconds = max(wrong.items(), key=lambda item: abs(item[1]))
        told = f"{len(wrong)} of {len(off)} are off; {name} last spoke {seconds:.0f} s before the API server's now"
        yield fault("nodes", told, f"drain and recreate: kubectl describe node {name}")
    else:
        yield ok("nodes", f"all {len(off)} within {_NODE_SECONDS:.0f} s of the API server")


def _now(scope: Scope) -> datetime:
    """By the API server's clock."""
    answer = scope.api.open("/version", {})
    try:
        return parsedate_to_datetime(answer.headers["Date"])
    except (KeyError, ValueError):
        raise NotAsked("the API server does not say what time it is") from None
    finally:
        answer.close()

"""A job as a cluster shows it, and what is said of it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cli.deployed import JobRef
from cli.explain.explain import explain
from cli.explain.finding import Finding
from cli.observed.snapshot import JobStatus, Node, Queue, Snapshot
from infra.cluster.job_pods import Pod
from infra.cluster.job_state import Workload
from infra.stack.manifests import Condition
from workloads.report.training import Training

NOW = 10_000.0
REF = JobRef("tiny", "research", "research")
NO_QUOTA = (
    "couldn't assign flavors to pod set slice: insufficient unused quota for google.com/tpu in flavor v6e-2x4,"
    " 8 more needed"
)
TOO_LARGE = (
    "couldn't assign flavors to pod set slice: insufficient quota for google.com/tpu in flavor v6e-2x4, previously"
    " considered podsets requests (0) + current podset request (24) > maximum capacity (16)"
)
NO_ROOM = "couldn't assign flavors to pod set slice: topology \"slices\" doesn't allow to fit any of 4 pod(s)"


def said(kind: str, holds: bool, reason: str = "", message: str = "", since: float = 9_000.0) -> Condition:
    return Condition(kind, holds, reason, message, since)


def workload(*conditions: Condition, admitted: bool = False, name: str = "tiny") -> Workload:
    return Workload(
        name=f"jobset-{name}",
        uid=f"uid-{name}",
        namespace="research",
        queue="research",
        owner=name,
        priority=500,
        chips=16,
        created=8_000.0,
        active=True,
        admitted_by="research" if admitted else "",
        held_chips={"v6e-2x4": 16} if admitted else {},
        requeue_at=None,
        evictions={},
        checks=(),
        conditions=conditions,
    )


ADMITTED = workload(said("QuotaReserved", True), said("Admitted", True), admitted=True)
JOB = JobStatus(REF, declared=True, uid="uid", created=8_000.0, slices=2, hosts=4, max_restarts=3, workload=ADMITTED)


def training(**figures: Any) -> Training:
    """Return the progress of the attempt of `PODS`."""
    return Training(submission=JOB.uid, began=9_002.0, **figures)


def pod(host: str, phase: str = "Running", **changes: object) -> Pod:
    made = Pod(f"tiny-{host}-x", f"uid-{host}", "research", host, phase, f"node-{host}", 0, 9_000.0, 9_001.0, None, "")
    return replace(made, **changes)


PODS = tuple(pod(f"slice-{slice_index}-{host}") for slice_index in (0, 1) for host in (0, 1))
NODES = tuple(
    Node(pod.node, f"pool-{place // 2}", "2x4", 4, True, "", 0.0, False, "", ()) for place, pod in enumerate(PODS)
)


def findings(job: JobStatus, **seen: Any) -> tuple[Finding, ...]:
    """Return what is said of the job in a cluster with its nodes, its queue and what else is `seen`."""
    queue = Queue("research", "research", (), 1, 0, (said("Active", True, "Ready"),))
    own = (job.workload,) if job.workload else ()
    usual: dict[str, Any] = {"nodes": NODES, "queues": (queue,), "workloads": own, "jobs": (job,)}
    return explain(Snapshot("dev", seen.pop("options", "-s dev"), "dev", NOW, **usual | seen), job)


def explained(cases: Mapping[str, tuple[JobStatus, Mapping[str, Any]]]) -> str:
    """Return all that is said of the job of each case."""
    lines: list[str] = []
    for name, (job, seen) in cases.items():
        lines += ["", f"# {name}"]
        for found in findings(job, **seen):
            since = "" if found.since is None else f" (since {found.since:g})"
            lines += [f"{found.cause}: {found.what}{since}", *(f"  {line}" for line in found.evidence)]
            lines += [f"  -> {line}" for line in found.next]
    return "\n".join(lines[1:]) + "\n"

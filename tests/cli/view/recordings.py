"""Recorded objects of the Kubernetes API, engine events and log lines, and snapshots made from them."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from pulumi.automation.events import EngineEvent

from cli.view import reduce
from cli.view.snapshot import DOWN_PHASES, UP_PHASES, Phase, Snapshot
from tests.cli.api_objects import ADMITTED, HOSTS, NO_QUOTA, START, condition, jobset, pod, workload
from workloads.progress import CheckpointSaved, Evaluation, Line, RunStarted, RunSummary, StepProgress

TYPE_OF = {
    "network": "gcp:compute/network:Network",
    "cluster": "tpu-multislice:cluster:Cluster$gcp:container/cluster:Cluster",
    "slice-0": "gcp:container/nodePool:NodePool",
    "slice-1": "gcp:container/nodePool:NodePool",
    "kueue": "kubernetes:helm.sh/v4:Chart",
    "job": "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet",
}


def engine_event(kind: str, name: str, op: str = "create") -> EngineEvent:
    urn = f"urn:pulumi:local::tpu-multislice::{TYPE_OF[name]}::{name}"
    metadata = {"op": op, "urn": urn, "type": TYPE_OF[name].split("$")[-1], "provider": ""}
    return EngineEvent.from_json({"sequence": 0, "timestamp": 0, kind: {"metadata": metadata}})


def error_event(message: str) -> EngineEvent:
    event = {"message": message, "color": "never", "severity": "error"}
    return EngineEvent.from_json({"sequence": 0, "timestamp": 0, "diagnosticEvent": event})


def log(steps: Iterable[int], run: Line | None = None) -> list[Line]:
    lines: list[Line] = [run or RunStarted("r1", "new", 0, 200)]
    for step in steps:
        lines.append(StepProgress(step, 200, 5.5 - 3 * (step / 200) ** 0.5, 41_234.4, 49.6))
        if step % 50 == 0:
            lines.append(Evaluation(step, 5.6 - 3 * (step / 200) ** 0.5))
        if step % 25 == 0:
            lines.append(CheckpointSaved(step, f"gs://tpu-multislice-checkpoints/tiny/runs/r1/checkpoints/{step}"))
    return lines


def tell_log(snapshot: Snapshot, lines: Iterable[Line]) -> Snapshot:
    for line in lines:
        snapshot = reduce.log_line(snapshot, line.line())
    return snapshot


def see_pods(snapshot: Snapshot, pods: Iterable[Mapping[str, Any]], at: float = START + 53) -> Snapshot:
    for found in pods:
        snapshot = reduce.pod(snapshot, found, at, False)
    return snapshot


def building() -> Snapshot:
    snapshot = Snapshot("tpu-multislice · local", UP_PHASES).begin(Phase.PROGRAMS, START)
    return snapshot.tell(Phase.PROGRAMS, "3 of 10: building kube-controller-manager")


def starting() -> Snapshot:
    snapshot = building().end(Phase.PROGRAMS, START + 0.1, "10 ready")
    return snapshot.begin(Phase.CONTROL_PLANE, START + 0.1).tell(Phase.CONTROL_PLANE, "API server")


def planning() -> Snapshot:
    snapshot = starting().end(Phase.CONTROL_PLANE, START + 9, "API server at https://127.64.0.1:6443")
    snapshot = snapshot.begin(Phase.PLAN, START + 9)
    for name in TYPE_OF:
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            snapshot = reduce.engine(snapshot, Phase.PLAN, engine_event(kind, name))
    return snapshot


def applying() -> Snapshot:
    snapshot = reduce.engine_done(planning(), Phase.PLAN).end(Phase.PLAN, START + 13)
    snapshot = snapshot.begin(Phase.INFRASTRUCTURE, START + 13)
    for name in ("network", "cluster", "slice-0", "slice-1"):
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            snapshot = reduce.engine(snapshot, Phase.INFRASTRUCTURE, engine_event(kind, name))
    return reduce.engine(snapshot, Phase.INFRASTRUCTURE, engine_event("resourcePreEvent", "kueue"))


def applied() -> Snapshot:
    snapshot = applying()
    for kind, name in (("resOutputsEvent", "kueue"), ("resourcePreEvent", "job"), ("resOutputsEvent", "job")):
        snapshot = reduce.engine(snapshot, Phase.INFRASTRUCTURE, engine_event(kind, name))
    snapshot = reduce.engine_done(snapshot, Phase.INFRASTRUCTURE).end(Phase.INFRASTRUCTURE, START + 50)
    hint = "kill -9 $(cat .sandbox/pods/*-slice-1-0-*/pid)"
    snapshot = replace(snapshot, job="tiny", queue="research", hint=hint)
    return reduce.jobset(snapshot, jobset(), START + 50, False)


def queued() -> Snapshot:
    other = workload("jobset-other-4c5d6", owner="other", created=10)
    pending = workload(conditions=[condition("QuotaReserved", "False", 50, NO_QUOTA, "Pending")])
    return reduce.workload(reduce.workload(applied(), other, START + 51, False), pending, START + 51, False)


def placing() -> Snapshot:
    snapshot = reduce.workload(applied(), workload(conditions=ADMITTED), START + 51, False)
    return see_pods(snapshot, [pod(0, 0), pod(0, 1), pod(1, 0, "Pending")])


def compiling() -> Snapshot:
    return see_pods(placing(), [pod(*host) for host in HOSTS])


def training() -> Snapshot:
    return tell_log(compiling(), log(range(1, 121)))


def restarted() -> Snapshot:
    snapshot = see_pods(training(), [pod(1, 0, "Failed", exit_code=137)])
    snapshot = reduce.jobset(snapshot, jobset(restarts=1), START + 70, False)
    snapshot = see_pods(snapshot, [pod(*host, attempt=1, created=72) for host in HOSTS])
    return tell_log(snapshot, log(range(101, 151), RunStarted("r1", "resumed", 100, 200)))


def completed() -> Snapshot:
    snapshot = tell_log(restarted(), [*log(range(151, 201), RunStarted("r1", "resumed", 150, 200))])
    snapshot = tell_log(snapshot, [RunSummary("r1", 200, 2.5987654, 12.3)])
    snapshot = see_pods(snapshot, [pod(*host, "Succeeded", attempt=1, exit_code=0, created=72) for host in HOSTS])
    return reduce.jobset(snapshot, jobset(1, "Completed", "jobset completed successfully", 95), START + 96, False)


def failed() -> Snapshot:
    snapshot = see_pods(training(), [pod(0, 1, "Failed", exit_code=22)])
    message = "jobset failed due to one or more job failures (first failed job: tiny-slice-0)"
    return reduce.jobset(snapshot, jobset(0, "Failed", message, 88), START + 89, False)


def destroying() -> Snapshot:
    snapshot = Snapshot("tpu-multislice · local", DOWN_PHASES).begin(Phase.CONTROL_PLANE, START)
    snapshot = snapshot.tell(Phase.CONTROL_PLANE, "runs already").end(Phase.CONTROL_PLANE, START + 0.1)
    snapshot = snapshot.begin(Phase.DESTROY, START + 0.1)
    for name in ("job", "kueue", "slice-0"):
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            snapshot = reduce.engine(snapshot, Phase.DESTROY, engine_event(kind, name, "delete"))
    return reduce.engine(snapshot, Phase.DESTROY, engine_event("resourcePreEvent", "network", "delete"))

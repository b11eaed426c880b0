"""Recorded events of the engine, and the progress of a command after them."""

from pulumi.automation.events import EngineEvent

from cli.progress import DOWN_PHASES, UP_PHASES, Phase, Progress, engine, engine_done
from tests.cli.api_objects import START

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


_EXPECTED = {Phase.PROGRAMS: 400.0, Phase.CONTROL_PLANE: 10.0, Phase.PLAN: 10.0, Phase.INFRASTRUCTURE: 30.0}


def building() -> Progress:
    progress = Progress("tpu-multislice · local", UP_PHASES, expected=_EXPECTED).begin(Phase.PROGRAMS, START)
    return progress.describe(Phase.PROGRAMS, "3 of 10: building kube-controller-manager")


def starting() -> Progress:
    progress = building().describe(Phase.PROGRAMS, "10 ready").end(Phase.PROGRAMS, START + 0.1)
    return progress.begin(Phase.CONTROL_PLANE, START + 0.1).describe(Phase.CONTROL_PLANE, "API server")


def planning() -> Progress:
    progress = starting().describe(Phase.CONTROL_PLANE, "API server at https://127.64.0.1:6443")
    progress = progress.end(Phase.CONTROL_PLANE, START + 9)
    progress = progress.begin(Phase.PLAN, START + 9)
    for name in TYPE_OF:
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            progress = engine(progress, Phase.PLAN, engine_event(kind, name))
    return progress


def applying() -> Progress:
    progress = engine_done(planning(), Phase.PLAN).end(Phase.PLAN, START + 13)
    progress = progress.begin(Phase.INFRASTRUCTURE, START + 13)
    for name in ("network", "cluster", "slice-0", "slice-1"):
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            progress = engine(progress, Phase.INFRASTRUCTURE, engine_event(kind, name))
    return engine(progress, Phase.INFRASTRUCTURE, engine_event("resourcePreEvent", "kueue"))


def applied() -> Progress:
    progress = applying()
    for kind, name in (("resOutputsEvent", "kueue"), ("resourcePreEvent", "job"), ("resOutputsEvent", "job")):
        progress = engine(progress, Phase.INFRASTRUCTURE, engine_event(kind, name))
    return engine_done(progress, Phase.INFRASTRUCTURE).end(Phase.INFRASTRUCTURE, START + 50)


def destroying() -> Progress:
    progress = Progress("tpu-multislice · local", DOWN_PHASES).begin(Phase.CONTROL_PLANE, START)
    progress = progress.describe(Phase.CONTROL_PLANE, "already running").end(Phase.CONTROL_PLANE, START + 0.1)
    progress = progress.begin(Phase.DESTROY, START + 0.1)
    for name in ("job", "kueue", "slice-0"):
        for kind in ("resourcePreEvent", "resOutputsEvent"):
            progress = engine(progress, Phase.DESTROY, engine_event(kind, name, "delete"))
    return engine(progress, Phase.DESTROY, engine_event("resourcePreEvent", "network", "delete"))

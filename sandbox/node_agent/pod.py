"""A pod as the API server describes it, and its status as kubelet reports it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from infra.cluster.kubernetes import Json
from sandbox.site import pod_folder

LOST_EXIT_CODE = 137


@dataclass(frozen=True)
class Pod:
    """A read-only view of one version of a pod object."""

    manifest: Json

    @cached_property
    def metadata(self) -> Json:
        return self.manifest["metadata"]

    @cached_property
    def spec(self) -> Json:
        return self.manifest["spec"]

    @cached_property
    def status(self) -> Json:
        """Return the status that was last reported; empty at first."""
        return self.manifest.get("status", {})

    @property
    def name(self) -> str:
        return self.metadata["name"]

    @property
    def namespace(self) -> str:
        return self.metadata["namespace"]

    @property
    def uid(self) -> str:
        """Return the identity of the object. A pod that replaces it has another identity."""
        return self.metadata["uid"]

    @property
    def labels(self) -> dict[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def folder_name(self) -> str:
        """Return the name of its two folders, one for working files and one for logs."""
        return pod_folder(self.namespace, self.name, self.uid)

    @property
    def node(self) -> str:
        """Return the node that the pod is bound to. The node agent sees only bound pods."""
        return self.spec["nodeName"]

    @property
    def hostname(self) -> str:
        return self.spec.get("hostname") or self.name

    @property
    def subdomain(self) -> str | None:
        return self.spec.get("subdomain")

    @property
    def containers(self) -> list[Json]:
        return self.spec["containers"]

    @property
    def init_containers(self) -> list[Json]:
        return self.spec.get("initContainers") or []

    @property
    def all_containers(self) -> list[Json]:
        """Return all its containers, init containers first."""
        return [*self.init_containers, *self.containers]

    def restart_policy(self, container: Json) -> str:
        """Return the restart policy of one container. An init container that succeeded does not restart."""
        policy: str = self.spec["restartPolicy"]
        if container in self.init_containers and policy == "Always":
            policy = "OnFailure"
        return container.get("restartPolicy", policy)

    @property
    def container_statuses(self) -> list[Json]:
        """Return the reported statuses of all its containers, init containers first."""
        return [*self.status.get("initContainerStatuses", []), *self.status.get("containerStatuses", [])]

    @property
    def grace_seconds(self) -> int:
        asked = self.metadata.get("deletionGracePeriodSeconds")
        return self.spec["terminationGracePeriodSeconds"] if asked is None else asked

    @property
    def deleting(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def ended(self) -> bool:
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def started(self) -> bool:
        """Return whether a process of this pod was ever reported."""
        return any(
            {"running", "terminated"} & {*status.get("state", {}), *status.get("lastState", {})}
            for status in self.container_statuses
        )

    @property
    def owner_job(self) -> str | None:
        owners: list[Json] = self.metadata.get("ownerReferences") or []
        return next((owner["name"] for owner in owners if owner["kind"] == "Job"), None)


@dataclass(frozen=True)
class PodReason:
    """Why the node, not the pod's own program, ended a pod."""

    reason: str
    message: str
    disruption: str | None = None
    """Reason of the condition DisruptionTarget, where Kubernetes sets one."""


NODE_RESTARTED = PodReason("NodeRestarted", "The sandbox was restarted and this pod's processes ended with it.")

# As kubelet words it while the device plugin of a machine reports no healthy chip.
REFUSED = PodReason(
    "UnexpectedAdmissionError",
    "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices"
    " google.com/tpu, which is unexpected",
)

DEADLINE_EXCEEDED = PodReason("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")

# As kubelet's graceful node shutdown words it, so that podFailurePolicy sees what it would see on GKE.
NODE_SHUTDOWN = PodReason(
    "Terminated", "Pod was terminated in response to imminent node shutdown.", "TerminationByKubelet"
)


@dataclass(frozen=True)
class ContainerRecord:
    """What the pod's status says of one container."""

    state: Json = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last_state: Json = field(default_factory=dict[str, Any])
    """State at the end of the run before this one."""
    restarts: int = 0
    started: bool = False
    """It runs and its startup probe has passed."""
    ready: bool = False

    @property
    def running(self) -> bool:
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the newest run; None while it has not ended."""
        return self.state.get("terminated", {}).get("exitCode")


def is_sidecar(container: Json) -> bool:
    """Return whether an init container runs next to the others until they have ended."""
    return container.get("restartPolicy") == "Always"


def timestamp(moment: datetime) -> str:
    """Return a time as Kubernetes writes it, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str) -> Json:
    """Return the state of a container that cannot be started yet."""
    return {"waiting": {"reason": reason, "message": message}}


def running(started: datetime) -> Json:
    """Return the state of a container that runs."""
    return {"running": {"startedAt": timestamp(started)}}


def lost(moment: datetime) -> Json:
    """Return the state of a container that ran when the node agent was last seen and does not run any more."""
    message = "The container could not be located when the pod was terminated"
    reason = {"exitCode": LOST_EXIT_CODE, "reason": "ContainerStatusUnknown", "message": message}
    return {"terminated": {**reason, "finishedAt": timestamp(moment)}}


def pod_status(
    pod: Pod,
    records: Mapping[str, ContainerRecord],
    *,
    address: str,
    host_address: str,
    started: datetime,
    final: bool,
    reason: PodReason | None,
    now: datetime,
) -> Json:
    """Return the status to patch in.

    `records` are those of all containers by name. `final` says that no container is running, and none will run again.
    """
    start_time = pod.status.get("startTime") or timestamp(started)
    cause = {"reason": reason.reason, "message": reason.message} if reason else {}
    if reason is REFUSED:
        # Kubelet reports no container of such a pod.
        return {"phase": "Failed", "startTime": start_time, **cause}
    inits = [_container_status(container, records[container["name"]], pod) for container in pod.init_containers]
    containers = [_container_status(container, records[container["name"]], pod) for container in pod.containers]
    phase = _phase([records[container["name"]] for container in pod.containers], final, reason)
    sidecars = [records[container["name"]] for container in pod.init_containers if is_sidecar(container)]
    ready = phase == "Running" and all(each["ready"] for each in containers) and all(each.ready for each in sidecars)
    initialized = all(
        status["started"] if is_sidecar(container) else status["ready"]
        for container, status in zip(pod.init_containers, inits, strict=True)
    )
    conditions = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready}
    status: Json = {
        "phase": phase,
        "startTime": start_time,
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": containers,
        "conditions": _conditions(pod, conditions, phase, now),
        **({"initContainerStatuses": inits} if inits else {}),
        **cause,
    }
    if reason and reason.disruption:
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason.disruption, "message": reason.message}
        status["conditions"].append({**target, "lastTransitionTime": timestamp(now)})
    return status


def _phase(records: Sequence[ContainerRecord], final: bool, reason: PodReason | None) -> str:
    if final:
        succeeded = all(record.exit_code == 0 for record in records) and reason is None
        return "Succeeded" if succeeded else "Failed"
    begun = all(record.running or record.exit_code is not None or record.last_state for record in records)
    return "Running" if begun else "Pending"


def _container_status(container: Json, record: ContainerRecord, pod: Pod) -> Json:
    runs_first = container in pod.init_containers and not is_sidecar(container)
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"process://{pod.uid}/{container['name']}/{record.restarts}",
        "state": record.state,
        "lastState": record.last_state,
        "restartCount": record.restarts,
        "ready": record.exit_code == 0 if runs_first else record.running and record.ready,
        "started": record.running and record.started,
    }


def _conditions(pod: Pod, values: Mapping[str, bool], phase: str, now: datetime) -> list[Json]:
    known = {condition["type"]: condition for condition in pod.status.get("conditions", [])}
    not_ready = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")
    conditions: list[Json] = []
    for kind, value in values.items():
        text = "True" if value else "False"
        before: Json = known.get(kind, {})
        since = before.get("lastTransitionTime") if before.get("status") == text else timestamp(now)
        reason = None if value else not_ready
        conditions.append({"type": kind, "status": text, "lastTransitionTime": since, "reason": reason})
    return conditions


def pod_event(pod: Pod, reason: str, message: str, now: datetime) -> Json:
    """Return a warning about the pod, as `kubectl describe` shows it."""
    subject = {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{pod.name}.", "namespace": pod.namespace},
        "involvedObject": subject,
        "type": "Warning",
        "reason": reason,
        "message": message,
        "source": {"component": "sandbox-node-agent", "host": pod.node},
        "firstTimestamp": timestamp(now),
        "lastTimestamp": timestamp(now),
        "count": 1,
    }

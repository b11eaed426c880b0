"""A pod as the API server describes it, and its status as kubelet reports it. Pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property

from infra.kubernetes import Json
from sandbox.site import pod_folder

LOST_EXIT_CODE = 137


class ConfigError(RuntimeError):
    """Raised when a container cannot be created as its pod declares it (kubelet's CreateContainerConfigError)."""


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
        """Return the subdomain by which other pods resolve it, if it has one."""
        return self.spec.get("subdomain")

    @property
    def containers(self) -> list[Json]:
        return self.spec["containers"]

    @property
    def init_containers(self) -> list[Json]:
        return self.spec.get("initContainers") or []

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
        """Return whether it was reported as Succeeded or Failed."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def started(self) -> bool:
        """Return whether a process of this pod was ever reported."""
        return any({"running", "terminated"} & status.get("state", {}).keys() for status in self.container_statuses)

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

# As kubelet's graceful node shutdown words it, so that podFailurePolicy sees what it would see on GKE.
NODE_SHUTDOWN = PodReason(
    "Terminated", "Pod was terminated in response to imminent node shutdown.", "TerminationByKubelet"
)

NOT_STARTED: Json = {"waiting": {"reason": "PodInitializing"}}
"""State of a container that has not been started yet."""


def timestamp(moment: datetime) -> str:
    """Return a time as Kubernetes writes it, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str) -> Json:
    """Return the state of a container that cannot be started yet."""
    return {"waiting": {"reason": reason, "message": message}}


def running(started: datetime) -> Json:
    """Return the state of a container that runs."""
    return {"running": {"startedAt": timestamp(started)}}


def terminated(code: int, started: datetime, finished: datetime) -> Json:
    """Return the state after an exit with the code of `Popen`: below 0 it is a signal, which becomes 128 + n."""
    times = {"startedAt": timestamp(started), "finishedAt": timestamp(finished)}
    if code < 0:
        by = {"exitCode": 128 - code, "signal": -code, "message": f"ended by {signal.Signals(-code).name}"}
        return {"terminated": {"reason": "Error", **by, **times}}
    return {"terminated": {"reason": "Error" if code else "Completed", "exitCode": code, **times}}


def unstartable(message: str, moment: datetime) -> Json:
    """Return the state of a container whose program could not be executed."""
    times = {"startedAt": timestamp(moment), "finishedAt": timestamp(moment)}
    return {"terminated": {"exitCode": 128, "reason": "StartError", "message": message, **times}}


def lost(moment: datetime) -> Json:
    """Return the state of a container that ran when the node agent was last seen and does not run any more."""
    message = "The container could not be located when the pod was terminated"
    reason = {"exitCode": LOST_EXIT_CODE, "reason": "ContainerStatusUnknown", "message": message}
    return {"terminated": {**reason, "finishedAt": timestamp(moment)}}


def exit_code(state: Json) -> int | None:
    """Return the exit code of a container in this state; None while it has not ended."""
    return state.get("terminated", {}).get("exitCode")


def pod_status(
    pod: Pod,
    states: Mapping[str, Json],
    *,
    address: str,
    host_address: str,
    started: datetime,
    final: bool,
    reason: PodReason | None,
    now: datetime,
) -> Json:
    """Return the status to patch in.

    `states` are those of containers by name, init containers included; a missing container has not been started.
    `final` says that no container is running, and none will run again.
    """
    inits = [_container_status(container, states, pod) for container in pod.init_containers]
    containers = [_container_status(container, states, pod) for container in pod.containers]
    phase = _phase([status["state"] for status in containers], final, reason)
    ready = phase == "Running" and all(status["ready"] for status in containers)
    initialized = all(status["ready"] for status in inits)
    conditions = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready}
    status: Json = {
        "phase": phase,
        "startTime": pod.status.get("startTime") or timestamp(started),
        "hostIP": host_address,
        "hostIPs": [{"ip": host_address}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": containers,
        "conditions": _conditions(pod, conditions, phase, now),
    }
    if inits:
        status["initContainerStatuses"] = inits
    if reason:
        status |= {"reason": reason.reason, "message": reason.message}
    if reason and reason.disruption:
        target = {"type": "DisruptionTarget", "status": "True", "reason": reason.disruption, "message": reason.message}
        status["conditions"].append({**target, "lastTransitionTime": timestamp(now)})
    return status


def _phase(states: Sequence[Json], final: bool, reason: PodReason | None) -> str:
    if final:
        succeeded = all(exit_code(state) == 0 for state in states) and reason is None
        return "Succeeded" if succeeded else "Failed"
    begun = all("running" in state or exit_code(state) is not None for state in states)
    return "Running" if begun else "Pending"


def _container_status(container: Json, states: Mapping[str, Json], pod: Pod) -> Json:
    state = states.get(container["name"], NOT_STARTED)
    runs = "running" in state
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"process://{pod.uid}/{container['name']}",
        "state": state,
        "lastState": {},
        "restartCount": 0,
        "ready": exit_code(state) == 0 if container in pod.init_containers else runs,
        "started": runs,
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

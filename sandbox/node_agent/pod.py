"""A pod as the API server describes it, and its status as kubelet reports it. Pure."""

import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from sandbox.site import pod_folder

type Json = dict[str, Any]


class ConfigError(RuntimeError):
    """A container cannot be made as its pod asks; kubelet's CreateContainerConfigError."""


@dataclass(frozen=True)
class Pod:
    """A read-only view of one version of a pod object."""

    manifest: Json

    @cached_property
    def metadata(self) -> Json:
        """Name, labels, owners and times."""
        return self.manifest["metadata"]

    @cached_property
    def spec(self) -> Json:
        """What was asked for."""
        return self.manifest["spec"]

    @cached_property
    def status(self) -> Json:
        """What was reported of it; empty at first."""
        return self.manifest.get("status", {})

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.metadata["name"]

    @property
    def namespace(self) -> str:
        """Namespace of the object."""
        return self.metadata["namespace"]

    @property
    def uid(self) -> str:
        """Identity of the object: a pod that replaces it has another one."""
        return self.metadata["uid"]

    @property
    def labels(self) -> dict[str, str]:
        """Labels, none if unset."""
        return self.metadata.get("labels") or {}

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations, none if unset."""
        return self.metadata.get("annotations") or {}

    @property
    def path(self) -> str:
        """Path of the object in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    @property
    def folder_name(self) -> str:
        """Name of its folders, for working files and for logs."""
        return pod_folder(self.namespace, self.name, self.uid)

    @property
    def node(self) -> str:
        """Node it is bound to; only bound pods get here."""
        return self.spec["nodeName"]

    @property
    def hostname(self) -> str:
        """What the pod's processes see as their host name."""
        return self.spec.get("hostname") or self.name

    @property
    def subdomain(self) -> str | None:
        """Subdomain under which peers find it, if it has one."""
        return self.spec.get("subdomain")

    @property
    def containers(self) -> list[Json]:
        """Specifications of its containers."""
        return self.spec["containers"]

    @property
    def init_containers(self) -> list[Json]:
        """Specifications of the containers that run before them, one by one."""
        return self.spec.get("initContainers") or []

    @property
    def restart_policy(self) -> str:
        """Always, OnFailure or Never."""
        return self.spec["restartPolicy"]

    @property
    def grace_seconds(self) -> int:
        """How long a process may take to end after SIGTERM."""
        asked = self.metadata.get("deletionGracePeriodSeconds")
        return self.spec["terminationGracePeriodSeconds"] if asked is None else asked

    @property
    def deleting(self) -> bool:
        """Whether its deletion was asked for."""
        return "deletionTimestamp" in self.metadata

    @property
    def ended(self) -> bool:
        """Whether it was reported to have ended for good."""
        return self.status.get("phase") in ("Succeeded", "Failed")

    @property
    def started(self) -> bool:
        """Whether the API server was told of a process of this pod."""
        statuses = [*self.status.get("initContainerStatuses", []), *self.status.get("containerStatuses", [])]
        return any(
            {"running", "terminated"} & {*status.get("state", {}), *status.get("lastState", {})} for status in statuses
        )

    @property
    def owner_job(self) -> str | None:
        """Name of the Job that made this pod."""
        owners: list[Json] = self.metadata.get("ownerReferences") or []
        return next((owner["name"] for owner in owners if owner["kind"] == "Job"), None)


LOST_EXIT_CODE = 137


@dataclass(frozen=True)
class ContainerRecord:
    """What has become of one container."""

    state: Json
    last_state: Json = field(default_factory=dict[str, object])
    restart_count: int = 0

    @property
    def running(self) -> bool:
        """Whether its process runs."""
        return "running" in self.state

    @property
    def exit_code(self) -> int | None:
        """Exit code of the run that ended and was not followed by another one yet."""
        return self.state.get("terminated", {}).get("exitCode")


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

NOT_STARTED = ContainerRecord({"waiting": {"reason": "PodInitializing"}})


def timestamp(moment: datetime) -> str:
    """A time as Kubernetes writes it, in whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def waiting(reason: str, message: str) -> Json:
    """State of a container that does not run yet, or again."""
    return {"waiting": {"reason": reason, "message": message}}


def running(started: datetime) -> Json:
    """State of a container that runs."""
    return {"running": {"startedAt": timestamp(started)}}


def terminated(code: int, started: datetime, finished: datetime) -> Json:
    """State after an exit with the code of `Popen`: below 0 it is a signal, which becomes 128 + n."""
    times = {"startedAt": timestamp(started), "finishedAt": timestamp(finished)}
    if code < 0:
        by = {"exitCode": 128 - code, "signal": -code, "message": f"ended by {signal.Signals(-code).name}"}
        return {"terminated": {"reason": "Error", **by, **times}}
    return {"terminated": {"reason": "Error" if code else "Completed", "exitCode": code, **times}}


def unstartable(message: str, moment: datetime) -> Json:
    """State of a container whose program could not be executed."""
    times = {"startedAt": timestamp(moment), "finishedAt": timestamp(moment)}
    return {"terminated": {"exitCode": 128, "reason": "StartError", "message": message, **times}}


def lost(moment: datetime) -> Json:
    """State of a container that ran when the node agent was last seen, and does not now."""
    message = "The container could not be located when the pod was terminated"
    reason = {"exitCode": LOST_EXIT_CODE, "reason": "ContainerStatusUnknown", "message": message}
    return {"terminated": {**reason, "finishedAt": timestamp(moment)}}


@dataclass(frozen=True)
class PodReport:
    """All that the status of a pod is made of."""

    pod: Pod
    records: Mapping[str, ContainerRecord]
    """By container name, init containers too; a name that is missing has not been started."""
    address: str
    host_address: str
    started: datetime
    final: bool
    """No container runs, and none will again."""
    reason: PodReason | None


def pod_status(report: PodReport, now: datetime) -> Json:
    """The status to patch in."""
    pod = report.pod
    inits = _statuses(pod.init_containers, report)
    containers = _statuses(pod.containers, report)
    phase = _phase(pod, report)
    ready = phase == "Running" and all(status["ready"] for status in containers)
    initialized = all(status["ready"] for status in inits)
    conditions = {"Initialized": initialized, "Ready": ready, "ContainersReady": ready}
    status: Json = {
        "phase": phase,
        "startTime": pod.status.get("startTime") or timestamp(report.started),
        "hostIP": report.host_address,
        "hostIPs": [{"ip": report.host_address}],
        "podIP": report.address,
        "podIPs": [{"ip": report.address}],
        "containerStatuses": containers,
        "conditions": _conditions(pod, conditions, phase, now),
    }
    if inits:
        status["initContainerStatuses"] = inits
    if report.reason:
        status |= {"reason": report.reason.reason, "message": report.reason.message}
        status["conditions"] += _disruption(report.reason, now)
    return status


def _phase(pod: Pod, report: PodReport) -> str:
    if report.final:
        codes = [report.records.get(container["name"], NOT_STARTED).exit_code for container in pod.containers]
        return "Succeeded" if all(code == 0 for code in codes) and report.reason is None else "Failed"
    records = [report.records.get(container["name"], NOT_STARTED) for container in pod.containers]
    begun = all(record.running or record.exit_code is not None or record.last_state for record in records)
    return "Running" if begun else "Pending"


def _statuses(containers: Sequence[Json], report: PodReport) -> list[Json]:
    return [
        _container_status(container, report.records.get(container["name"], NOT_STARTED), report.pod)
        for container in containers
    ]


def _container_status(container: Json, record: ContainerRecord, pod: Pod) -> Json:
    init = container in pod.init_containers
    return {
        "name": container["name"],
        "image": container.get("image", ""),
        "imageID": "",
        "containerID": f"process://{pod.uid}/{container['name']}/{record.restart_count}",
        "state": record.state,
        "lastState": record.last_state,
        "restartCount": record.restart_count,
        "ready": record.exit_code == 0 if init else record.running,
        "started": record.running,
    }


def _conditions(pod: Pod, values: Mapping[str, bool], phase: str, now: datetime) -> list[Json]:
    known = {condition["type"]: condition for condition in pod.status.get("conditions", [])}
    conditions: list[Json] = []
    for kind, value in values.items():
        text = "True" if value else "False"
        before: Json = known.get(kind, {})
        since = before.get("lastTransitionTime") if before.get("status") == text else timestamp(now)
        reason = None if value else _not_ready_reason(phase)
        conditions.append({"type": kind, "status": text, "lastTransitionTime": since, "reason": reason})
    return conditions


def _not_ready_reason(phase: str) -> str:
    return {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(phase, "ContainersNotReady")


def _disruption(reason: PodReason, now: datetime) -> list[Json]:
    if reason.disruption is None:
        return []
    return [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": reason.disruption,
            "message": reason.message,
            "lastTransitionTime": timestamp(now),
        }
    ]

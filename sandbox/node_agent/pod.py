"""A pod as the API server describes it: the few facts of it that the node agent asks for."""

from dataclasses import dataclass
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

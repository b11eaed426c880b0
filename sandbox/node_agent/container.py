"""From a container's specification to the plan of its process: environment, command, mounts, log."""

import base64
import shutil
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.kubernetes import ApiServer
from sandbox.node_agent.environment import Lookup, Surroundings, command_line, declared_variables
from sandbox.node_agent.leftovers import FOLDER_VARIABLE
from sandbox.node_agent.names import PodNames
from sandbox.node_agent.pod import ConfigError, Json, Pod
from sandbox.node_agent.pod_process import Plan
from sandbox.node_agent.tpu_variables import cpu_variables, device_variables, requested_chips, webhook_variables
from sandbox.node_agent.volumes import Mount, container_mounts
from sandbox.site import Site

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


_TEMPORARY = "/var/tmp"
"""Where a pod's own folder for temporary files is mounted. Short, since paths of sockets must be."""

_TOKEN_SECONDS = 3600
"""Kubernetes' own default of a projected token."""


@dataclass(frozen=True)
class Machine:
    """What all pods of a site share."""

    site: Site
    python: Path
    """Interpreter whose folder comes first in PATH."""
    checkout: Path
    """Stands for the files of every image: PYTHONPATH."""
    api: ApiServer
    names: PodNames
    closing: threading.Event
    """Set when the agent ends; nothing is tried again then."""
    silent: set[str] = field(default_factory=set[str])
    """Names of the nodes that cannot reach the API server."""


def container_plan(container: Json, around: Surroundings, machine: Machine, folder: Path) -> Plan:
    """Resolve all that the container refers to, and make its folders and volumes.

    Raises:
        ConfigError: it cannot be made here, or not yet.
    """
    pod = around.pod
    if container.get("restartPolicy") == "Always":
        raise ConfigError("init containers with restartPolicy Always (sidecars) are not run here; use a container")
    declared = declared_variables(container, around, _webhook_variables(container, pod, machine.api))
    environment = {
        **_image_variables(machine, pod, folder),
        **device_variables(container, around),
        **declared,
        **cpu_variables(container, around),
    }
    own_mounts = [
        Mount(machine.names.hosts_file(pod), "/etc/hosts", read_only=False),
        Mount(folder / "tmp", _TEMPORARY, read_only=False),
    ]
    return Plan(
        command=command_line(container, declared),
        environment=environment,
        hostname=pod.hostname,
        workdir=Path(container.get("workingDir") or _new_folder(folder / "work" / container["name"])),
        mounts=[*own_mounts, *container_mounts(container, around, folder / "volumes")],
        log=_new_log(machine.site, pod, container["name"]),
    )


def log_file(site: Site, folder_name: str, container: str, *, previous: bool) -> Path:
    """Log of a container's present run, or of the run before it."""
    return site.pod_logs(folder_name) / f"{container}{'.previous' if previous else ''}.log"


def object_lookup(api: ApiServer, namespace: str) -> Lookup:
    """Reads ConfigMaps and Secrets of one namespace."""

    def lookup(kind: str, name: str) -> Mapping[str, bytes] | None:
        found = api.find(f"/api/v1/namespaces/{namespace}/{kind}/{name}")
        if found is None:
            return None
        encoded: dict[str, str] = found.get("binaryData" if kind == "configmaps" else "data") or {}
        plain: dict[str, str] = (found.get("data") or {}) if kind == "configmaps" else {}
        return {
            **{key: value.encode() for key, value in plain.items()},
            **{key: base64.b64decode(value) for key, value in encoded.items()},
        }

    return lookup


def pod_token(api: ApiServer, pod: Pod, source: Json) -> str:
    """A token of the pod's service account that ends with the pod, as a volume's `source` asks for it."""
    account = pod.spec.get("serviceAccountName", "default")
    request = {
        "expirationSeconds": source.get("expirationSeconds", _TOKEN_SECONDS),
        "audiences": [source["audience"]] if "audience" in source else [],
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }
    path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
    return api.request("POST", path, {"spec": request})["status"]["token"]


def _webhook_variables(container: Json, pod: Pod, api: ApiServer) -> dict[str, str]:
    if not requested_chips(container):
        return {}
    job = pod.owner_job and api.find(f"/apis/batch/v1/namespaces/{pod.namespace}/jobs/{pod.owner_job}")
    return webhook_variables(container, pod, job or None)


def _image_variables(machine: Machine, pod: Pod, folder: Path) -> dict[str, str]:
    """The environment that an image would bring, the local object storage, and this process's compilation cache."""
    for place in ("home", "tmp"):
        (folder / place).mkdir(exist_ok=True)
    return {
        "PATH": f"{machine.python.parent}:{_SYSTEM_PATH}",
        "PYTHONPATH": str(machine.checkout),
        "PYTHONUNBUFFERED": "1",
        "LANG": "C.UTF-8",
        "HOSTNAME": pod.hostname,
        "HOME": str(folder / "home"),
        "TMPDIR": _TEMPORARY,
        FOLDER_VARIABLE: str(folder),
        "KUBERNETES_SERVICE_HOST": machine.site.address,
        "KUBERNETES_SERVICE_PORT": str(machine.site.api_server_port),
        **machine.site.client_environment(),
    }


def _new_folder(path: Path) -> Path:
    """An empty folder: what a container's run before this one wrote is gone, as in its image."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _new_log(site: Site, pod: Pod, container: str) -> Path:
    path = log_file(site, pod.folder_name, container, previous=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(log_file(site, pod.folder_name, container, previous=True))
    return path

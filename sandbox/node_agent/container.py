"""Turns a container's specification into the plan of its process: environment, command, mounts, host names, log."""

import base64
import shutil
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.cluster.kubernetes import ApiServer, Json
from sandbox.node_agent.environment import (
    ImageError,
    Lookup,
    Mount,
    Surroundings,
    command_line,
    container_mounts,
    declared_variables,
)
from sandbox.node_agent.pod import Pod
from sandbox.node_agent.pod_process import FOLDER_VARIABLE, Plan
from sandbox.site import PULLS_NO_IMAGES, Site
from sandbox.tpu_environment import cpu_variables, device_variables, requested_chips, webhook_variables

CLUSTER_DOMAIN = "cluster.local"

_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_TEMPORARY = "/var/tmp"
"""Mount path of a pod's own folder for temporary files. Short, because paths of sockets must be."""

_MESSAGE_PATH = "/dev/termination-log"
"""Kubernetes' default."""

_TOKEN_SECONDS = 3600
"""Kubernetes' default lifetime of a projected token."""


@dataclass
class PodNames:
    """Live hosts files: the cluster's DNS for pods that are processes of one machine.

    Each pod has its own hosts file, mounted over /etc/hosts. It contains a peer with a subdomain for as long as the
    peer exists, like a headless Service that publishes addresses before they are ready. No Service needs to exist for
    that, and Services themselves are not resolved.
    """

    site: Site
    _pods: dict[str, Pod] = field(default_factory=dict[str, Pod])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hosts_file(self, pod: Pod) -> Path:
        return self.site.pods / pod.folder_name / "hosts"

    def update(self, pod: Pod) -> None:
        with self._lock:
            self._pods[pod.uid] = pod
            self._rewrite(pod.namespace)

    def remove(self, pod: Pod) -> None:
        with self._lock:
            self._pods.pop(pod.uid, None)
            self._rewrite(pod.namespace)

    def create(self, pod: Pod) -> Path:
        """Write the pod's file for the first time; its folder exists."""
        with self._lock:
            path = self.hosts_file(pod)
            path.touch()
            self._rewrite(pod.namespace)
        return path

    def _rewrite(self, namespace: str) -> None:
        pods = [pod for pod in self._pods.values() if pod.namespace == namespace]
        peers = peer_lines(self.site, pods)
        for pod in pods:
            path = self.hosts_file(pod)
            if path.exists():
                address = self.site.pod_address(pod.namespace, pod.name)
                own = [*(full_names(pod) if pod.subdomain else []), pod.hostname]
                # Its `localhost` is its own address, so pods do not collide there.
                _write_in_place(path, f"{address}\t{' '.join(own)}\n{address}\tlocalhost\n{peers}")


def peer_lines(site: Site, pods: Iterable[Pod]) -> str:
    """Return one line for each name; when a pod was replaced, the newest pod has it."""
    by_age = sorted(pods, key=lambda pod: (pod.metadata["creationTimestamp"], not pod.deleting))
    newest = {(pod.hostname, pod.subdomain): pod for pod in by_age if pod.subdomain and not pod.ended}
    return "".join(
        f"{site.pod_address(pod.namespace, pod.name)}\t{' '.join(full_names(pod))}\n" for pod in newest.values()
    )


def full_names(pod: Pod) -> list[str]:
    """Return the names by which cluster DNS resolves a pod with a subdomain, longest first."""
    short = f"{pod.hostname}.{pod.subdomain}"
    in_namespace = f"{short}.{pod.namespace}"
    return [f"{in_namespace}.svc.{CLUSTER_DOMAIN}", f"{in_namespace}.svc", in_namespace, short]


def _write_in_place(path: Path, text: str) -> None:
    """Replace the content but keep the inode, which running pods have mounted."""
    content = text.encode()
    if path.read_bytes() == content:
        return
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        file.truncate()


@dataclass(frozen=True)
class Machine:
    """Settings that all pods of a site share."""

    site: Site
    python: Path
    """Interpreter whose folder comes first in PATH."""
    checkout: Path
    """Used as PYTHONPATH, in place of the files of every image."""
    api: ApiServer
    names: PodNames
    closing: threading.Event
    """Set when the agent ends. Nothing is retried after that."""
    silent: set[str] = field(default_factory=set[str])
    """Names of the nodes that cannot reach the API server."""
    broken: dict[str, str] = field(default_factory=dict[str, str])
    """Values of `BROKEN_ANNOTATION` by the name of the node."""
    restart_seconds: float = 10
    """Pause before the second restart of a container; it doubles with each further one. Kubelet's value."""


def container_plan(container: Json, around: Surroundings, machine: Machine) -> Plan:
    """Resolve what the container refers to, and make its folders and volumes.

    Raises ConfigError if the container cannot be created here, or not yet.
    """
    pod, name = around.pod, container["name"]
    if machine.broken.get(pod.node) == PULLS_NO_IMAGES:
        raise ImageError(f'Back-off pulling image "{container.get("image", "")}"')
    folder = machine.site.pods / pod.folder_name
    injected: dict[str, str] = {}
    if requested_chips(container):
        job = pod.owner_job and machine.api.find(f"/apis/batch/v1/namespaces/{pod.namespace}/jobs/{pod.owner_job}")
        injected = webhook_variables(container, pod, job or None)
    declared = declared_variables(container, around, injected)
    environment = {
        **_image_variables(machine, pod, folder),
        **device_variables(container, around.node),
        **declared,
        **cpu_variables(container, around.node, around.address),
    }
    message = _new_file(folder / "messages" / name)
    mounts = [
        Mount(machine.names.hosts_file(pod), "/etc/hosts", read_only=False),
        Mount(folder / "tmp", _TEMPORARY, read_only=False),
        Mount(message, container.get("terminationMessagePath", _MESSAGE_PATH), read_only=False),
        *container_mounts(container, around, folder / "volumes"),
    ]
    own = _new_folder(folder / "work" / name)
    workdir = Path(container.get("workingDir") or own)
    if not workdir.exists() and not any(workdir.is_relative_to(mount.target) for mount in mounts):
        mounts.append(Mount(own, str(workdir), read_only=False))
    return Plan(
        command=command_line(container, declared),
        environment=environment,
        hostname=pod.hostname,
        workdir=workdir,
        mounts=mounts,
        stage=_new_folder(folder / "stages" / name),
        log=_new_log(machine.site, pod, name),
        message=message,
    )


def log_file(site: Site, folder_name: str, container: str, *, previous: bool = False) -> Path:
    """Return the path of the log of a container's newest run, or of the run before it."""
    return site.pod_logs(folder_name) / f"{container}{'.previous' if previous else ''}.log"


def _new_folder(path: Path) -> Path:
    """Return an empty folder: as in an image, each run finds nothing of the run before it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path


def _new_file(path: Path) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"")
    return path


def _new_log(site: Site, pod: Pod, container: str) -> Path:
    path = log_file(site, pod.folder_name, container)
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        path.rename(log_file(site, pod.folder_name, container, previous=True))
    return path


def object_lookup(api: ApiServer, namespace: str) -> Lookup:
    """Return a function that reads ConfigMaps and Secrets of one namespace."""

    def lookup(kind: str, name: str) -> Mapping[str, bytes] | None:
        found = api.find(f"/api/v1/namespaces/{namespace}/{kind}/{name}")
        if found is None:
            return None
        decode = base64.b64decode if kind == "secrets" else str.encode
        binary = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
        return {key: decode(value) for key, value in (found.get("data") or {}).items()} | binary

    return lookup


def pod_token(api: ApiServer, pod: Pod, source: Json) -> str:
    """Request a token of the pod's service account that ends with the pod, as a volume's `source` describes it."""
    account = pod.spec.get("serviceAccountName", "default")
    request = {
        "expirationSeconds": source.get("expirationSeconds", _TOKEN_SECONDS),
        "audiences": [source["audience"]] if "audience" in source else [],
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid},
    }
    path = f"/api/v1/namespaces/{pod.namespace}/serviceaccounts/{account}/token"
    return api.request("POST", path, {"spec": request})["status"]["token"]


def _image_variables(machine: Machine, pod: Pod, folder: Path) -> dict[str, str]:
    """Return the environment that an image would bring, and the addresses of the local object storage."""
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
        **machine.site.storage.environment,
    }

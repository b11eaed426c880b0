"""Live hosts files: the cluster's DNS for pods that are processes of one machine.

Each pod has a hosts file of its own, mounted over /etc/hosts. A peer with a subdomain resolves in
it exactly while the peer exists, as with a headless Service that publishes addresses that are not
ready. No Service needs to exist for that, and Services themselves are not resolved.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from sandbox.node_agent.pod import Pod
from sandbox.site import Site

CLUSTER_DOMAIN = "cluster.local"


@dataclass
class PodNames:
    """Every pod of the site's nodes, and the hosts file of each."""

    site: Site
    _pods: dict[str, Pod] = field(default_factory=dict[str, Pod])
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hosts_file(self, pod: Pod) -> Path:
        """Where the pod's hosts file lies."""
        return self.site.pods / pod.folder_name / "hosts"

    def update(self, pod: Pod) -> None:
        """Note a pod that is new or has changed."""
        with self._lock:
            self._pods[pod.uid] = pod
            self._rewrite(pod.namespace)

    def remove(self, pod: Pod) -> None:
        """Forget a pod that is gone."""
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
                write_in_place(path, own_lines(pod, self.site.pod_address(pod.namespace, pod.name)) + peers)


def own_lines(pod: Pod, address: str) -> str:
    """What a pod calls itself. Its `localhost` is its own address, so pods do not meet there."""
    own = full_names(pod) if pod.subdomain else []
    return f"{address}\t{' '.join([*own, pod.hostname])}\n{address}\tlocalhost\n"


def peer_lines(site: Site, pods: Iterable[Pod]) -> str:
    """One line for each name; when a pod was replaced, the newest pod has it."""
    by_age = sorted(pods, key=lambda pod: (pod.metadata["creationTimestamp"], not pod.deleting))
    newest = {(pod.hostname, pod.subdomain): pod for pod in by_age if pod.subdomain and not pod.ended}
    return "".join(
        f"{site.pod_address(pod.namespace, pod.name)}\t{' '.join(full_names(pod))}\n" for pod in newest.values()
    )


def full_names(pod: Pod) -> list[str]:
    """The names under which cluster DNS knows a pod with a subdomain, longest first."""
    short = f"{pod.hostname}.{pod.subdomain}"
    in_namespace = f"{short}.{pod.namespace}"
    return [f"{in_namespace}.svc.{CLUSTER_DOMAIN}", f"{in_namespace}.svc", in_namespace, short]


def write_in_place(path: Path, text: str) -> None:
    """Replace the content but keep the inode, which running pods have mounted."""
    content = text.encode()
    if path.read_bytes() == content:
        return
    with path.open("r+b", buffering=0) as file:
        file.write(content)
        file.truncate()

"""The location of one sandbox, its folder and its block of loopback addresses, and the connections to its servers.

Every sandbox owns one block 127.N.0.0/16, so a person's sandbox and a test's never collide and every server keeps its
well-known port:

    127.N.0.1                  servers: API server 6443, etcd 2379/2380, kubelet 10250, GCS 4443,
                               webhooks of operators 9443, on their Services' addresses
    127.N.1.1 - 127.N.127.254  pods, one address each
    127.N.128.0/17             Kubernetes Services
"""

import hashlib
import json
import os
import random
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import urllib3

from infra.cluster.kubernetes import CONNECTIONS, ApiServer
from infra.stack.command_lines import command_line

SITE_VARIABLE = "TPU_MULTISLICE_SANDBOX"
"""Environment variable of the sandbox's own processes with the folder of their site."""

NODE_LABEL = "tpu-multislice.dev/sandbox-node"
"""Label of the nodes whose pods run on this machine."""

SILENT_ANNOTATION = "tpu-multislice.dev/silent"
"""Annotation of a node whose machine is disconnected: its processes keep running, but report nothing."""

BROKEN_ANNOTATION = "tpu-multislice.dev/broken"
REFUSES_PODS, PULLS_NO_IMAGES = "refuses-pods", "pulls-no-images"
"""Annotation of a node that starts no more pods, and its values: it refuses them as kubelet does while a machine has no
healthy chips, or lets them wait for their image."""

_FIRST_BLOCK, _LAST_BLOCK = 64, 250


@dataclass(frozen=True)
class Storage:
    """The GCS server of a sandbox, as programs outside of pods use it."""

    url: str

    @property
    def options(self) -> dict[str, str]:
        """Return the options with which gcsfs uses this server."""
        return {"endpoint_url": self.url, "token": "anon", "project": "sandbox"}

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment that makes Google client libraries, TensorStore and gcsfs use this server."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "sandbox",
        }


KUBECONFIG = "kubeconfig"
"""File of the cluster administrator in the folder of a sandbox."""


@dataclass(frozen=True)
class Site:
    """Paths and addresses of one sandbox. Nothing here touches disk or network."""

    api_server_port: ClassVar[int] = 6443
    etcd_port: ClassVar[int] = 2379
    etcd_peer_port: ClassVar[int] = 2380
    kubelet_port: ClassVar[int] = 10250
    gcs_port: ClassVar[int] = 4443
    webhook_port: ClassVar[int] = 9443
    """Port of every operator, on its Service's address. Ports below 1024 need root or a sysctl."""

    root: Path
    block: int
    """Second octet of the loopback addresses, 64 to 250."""

    @property
    def address(self) -> str:
        return f"127.{self.block}.0.1"

    @property
    def api_server_url(self) -> str:
        return f"https://{self.address}:{self.api_server_port}"

    @property
    def etcd_url(self) -> str:
        return f"https://{self.address}:{self.etcd_port}"

    @property
    def gcs_url(self) -> str:
        return f"http://{self.address}:{self.gcs_port}"

    @property
    def storage(self) -> Storage:
        return Storage(self.gcs_url)

    @property
    def egress_name(self) -> str:
        """Return the abstract name of the Unix socket of `sandbox.serve.Egress`."""
        return f"tpu-multislice-{self.address}"

    @property
    def service_cidr(self) -> str:
        return f"127.{self.block}.128.0/17"

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def kubeconfig(self) -> Path:
        """Return the path of the kubeconfig of the cluster administrator, for people and for the sandbox itself."""
        return self.root / KUBECONFIG

    @property
    def cloud(self) -> Path:
        return self.root / "cloud"

    @property
    def buckets(self) -> Path:
        return self.root / "buckets"

    @property
    def logs(self) -> Path:
        """Return the folder with the logs of servers, and of pods in `pods/NAMESPACE_POD_UID/CONTAINER.log`."""
        return self.root / "logs"

    @property
    def pods(self) -> Path:
        return self.root / "pods"

    @property
    def pulumi_home(self) -> Path:
        return self.root / "pulumi"

    @property
    def servers(self) -> Path:
        """Return the folder with the pids of servers, one file for each by its name."""
        return self.root / "servers"

    @property
    def daemon_pid(self) -> Path:
        return self.root / "daemon.pid"

    def pod_logs(self, folder: str) -> Path:
        """Return the folder of a pod's logs, one file for each container. It outlives the pod."""
        return self.logs / "pods" / folder

    def pod_address(self, namespace: str, name: str) -> str:
        """Return the loopback address of a pod: a hash of its name, so it is known before the pod exists."""
        digest = hashlib.sha256(f"{namespace}/{name}".encode()).digest()
        return f"127.{self.block}.{1 + digest[0] % 127}.{1 + digest[1] % 254}"


def pod_folder(namespace: str, name: str, uid: str) -> str:
    """Return the name of a pod's folder in `pods` and `logs/pods`."""
    return f"{namespace}_{name}_{uid}"


def storage_beside(api_server_url: str) -> Storage | None:
    """Return the GCS server of the sandbox whose API server has this URL. None: it is no sandbox of this machine.

    A member of a team has a kubeconfig and nothing else of the sandbox.
    """
    sites = (Site(Path(), block) for block in range(_FIRST_BLOCK, _LAST_BLOCK + 1))
    return next((site.storage for site in sites if site.api_server_url == api_server_url), None)


def start_command(root: Path) -> str:
    """Return the command line that creates or starts the sandbox in a folder and deploys a stack in it."""
    return command_line("up", "STACK", "--sandbox", str(root))


def load(root: Path) -> Site:
    """Return the site that was created in `root`. Raises FileNotFoundError if there is no sandbox in `root`."""
    record = json.loads((root / "site.json").read_text())
    return Site(root.resolve(), record["block"])


def from_environment() -> Site:
    """Return the site named by `TPU_MULTISLICE_SANDBOX`. Raises RuntimeError outside a process of a sandbox."""
    root = os.environ.get(SITE_VARIABLE)
    if root is None:
        raise RuntimeError(f"{SITE_VARIABLE} must name the sandbox's folder; `multislice up --sandbox` sets it")
    return load(Path(root))


def create(root: Path) -> Site:
    """Return the site in `root`, created on a free address block if it does not exist yet.

    Raises RuntimeError if every block is in use.
    """
    root.mkdir(parents=True, exist_ok=True)
    # Other users of the machine must not read logs, buckets and Pulumi's state.
    root.chmod(0o700)
    if (root / "site.json").exists():
        return load(root)
    site = Site(root.resolve(), _free_block())
    (root / "site.json").write_text(json.dumps({"block": site.block}) + "\n")
    return site


def taken_ports(site: Site) -> list[int]:
    """Return the ports of the site's servers that are in use, in ascending order."""
    ports = (site.etcd_port, site.etcd_peer_port, site.gcs_port, site.api_server_port, site.kubelet_port)
    return [port for port in sorted(ports) if not can_listen(site.address, port)]


def _free_block() -> int:
    # A random one: servers listen seconds later, and two sandboxes that begin together must not take the same block.
    blocks = range(_FIRST_BLOCK, _LAST_BLOCK + 1)
    for block in random.sample(blocks, len(blocks)):
        if not taken_ports(Site(Path(), block)):
            return block
    raise RuntimeError(f"no free loopback block from 127.{_FIRST_BLOCK} to 127.{_LAST_BLOCK}; stop other sandboxes")


def can_listen(address: str, port: int) -> bool:
    """Return whether the port of the address is free."""
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((address, port))
        except OSError:
            return False
    return True


def administrator(site: Site) -> ApiServer:
    """Return a client of the site's API server with the administrator's certificate; nothing is sent yet."""
    return ApiServer(site.api_server_url, _pool(site, "admin"))


def etcd(site: Site) -> urllib3.PoolManager:
    """Return the connections to the site's etcd, with the only certificate that it accepts."""
    return _pool(site, "etcd")


def _pool(site: Site, name: str) -> urllib3.PoolManager:
    return urllib3.PoolManager(
        maxsize=CONNECTIONS,
        ca_certs=str(site.pki / "ca.crt"),
        cert_file=str(site.pki / f"{name}.crt"),
        key_file=str(site.pki / f"{name}.key"),
    )

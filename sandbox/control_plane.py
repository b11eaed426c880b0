"""The sandbox's servers on loopback: Kubernetes' own control plane (etcd, API server, controllers, scheduler) and GCS.

Authentication is by client certificates and tokens, authorization is RBAC. Service addresses are loopback
addresses, so the API server reaches a webhook at its Service without a proxy. The GCS server is fake-gcs-server.
"""

import base64
import os
import signal
from dataclasses import dataclass

import urllib3

from sandbox.programs import Programs
from sandbox.servers import ServerError, ServerProcess, Supervision, answers, holds_within
from sandbox.site import Site, administrator, etcd

TOLERATED_SECONDS = 5
"""Default time that a pod stays on a node that is not ready or unreachable; Kubernetes' own default is 300."""

_READY_SECONDS = 60
_GCS_READY_SECONDS = 20

_CONTROLLERS = (
    "job-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "root-ca-certificate-publisher-controller",
    "node-lifecycle-controller",
    "taint-eviction-controller",
    "pod-garbage-collector-controller",
    "ttl-after-finished-controller",
    "clusterrole-aggregation-controller",
    "resourcequota-controller",
)
"""Controllers that batch jobs and the isolation of namespaces need: a quota counts once its controller has seen it.
Deployments and Endpoints have none, because the sandbox runs the operators itself."""


@dataclass
class ControlPlane:
    """The four server processes of Kubernetes."""

    site: Site
    programs: Programs
    supervision: Supervision

    def start_api(self) -> None:
        """Start etcd and the API server; returns when the API answers.

        Raises:
            ServerError: one of them did not become ready.
        """
        site = self.site
        health, pool = f"{site.etcd_url}/health", etcd(site)
        self._start("etcd", _etcd_flags(site)).wait_ready(lambda: answers(health, pool), _READY_SECONDS)
        api_server = self._start("kube-apiserver", _api_server_flags(site))
        api_server.wait_ready(administrator(site).ready, _READY_SECONDS)

    def start_controllers(self) -> None:
        """Start the controller manager and the scheduler."""
        pki = self.site.pki
        common = ["--leader-elect=false", "--secure-port=0"]
        self._start(
            "kube-controller-manager",
            [
                f"--kubeconfig={pki / 'controller-manager.kubeconfig'}",
                f"--service-account-private-key-file={pki / 'sa.key'}",
                f"--root-ca-file={pki / 'ca.crt'}",
                "--use-service-account-credentials=true",
                f"--controllers={','.join(_CONTROLLERS)}",
                *common,
            ],
        )
        self._start("kube-scheduler", [f"--kubeconfig={pki / 'scheduler.kubeconfig'}", *common])

    def _start(self, name: str, flags: list[str]) -> ServerProcess:
        command = [str(self.programs.path(name)), *flags]
        log = self.site.logs / f"{name}.log"
        # Halves the API server's memory; the machine is shared with the training processes.
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.site.root), "GOGC": "50"}
        return self.supervision.keep(ServerProcess.start(name, command, log, environment))


def erase(site: Site) -> None:
    """Delete every object of the cluster, so that the next cluster begins with what Kubernetes creates itself.

    Any process may call this, because the daemon restarts the servers that end here.
    """
    first = base64.b64encode(b"\0").decode()
    every_key = {"key": first, "range_end": first}
    etcd(site).request("POST", f"{site.etcd_url}/v3/kv/deleterange", json=every_key, retries=False)
    ended = {name: (site.servers / name).read_text() for name in ("kube-controller-manager", "kube-apiserver")}
    for pid in ended.values():
        os.kill(int(pid), signal.SIGKILL)

    def back() -> bool:
        restarted = all((site.servers / name).read_text() != pid for name, pid in ended.items())
        return restarted and administrator(site).ready()

    if not holds_within(_READY_SECONDS, back):
        raise ServerError(f"the API server did not come back within {_READY_SECONDS} s; see {site.logs}")


def _etcd_flags(site: Site) -> list[str]:
    pki, clients = site.pki, site.etcd_url
    peers = f"https://{site.address}:{site.etcd_peer_port}"
    keys = [f"cert-file={pki / 'etcd.crt'}", f"key-file={pki / 'etcd.key'}", f"trusted-ca-file={pki / 'ca.crt'}"]
    return [
        "--name=sandbox",
        f"--data-dir={site.etcd_data}",
        # A reader of etcd can read every Secret, and a writer is the cluster's administrator.
        *(f"--{part}{key}" for part in ("", "peer-") for key in (*keys, "client-cert-auth")),
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        f"--initial-advertise-peer-urls={peers}",
        f"--initial-cluster=sandbox={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _api_server_flags(site: Site) -> list[str]:
    pki = site.pki
    return [
        f"--etcd-servers={site.etcd_url}",
        f"--etcd-cafile={pki / 'ca.crt'}",
        f"--etcd-certfile={pki / 'etcd.crt'}",
        f"--etcd-keyfile={pki / 'etcd.key'}",
        f"--bind-address={site.address}",
        f"--advertise-address={site.address}",
        f"--secure-port={site.api_server_port}",
        "--endpoint-reconciler-type=none",
        f"--service-cluster-ip-range={site.service_cidr}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet-client.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet-client.key'}",
        f"--kubelet-certificate-authority={pki / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        # GKE runs it too: pods that request google.com/tpu tolerate the taint of that name.
        "--enable-admission-plugins=ExtendedResourceToleration",
        # Pods on a machine that is out of touch should be evicted soon.
        f"--default-not-ready-toleration-seconds={TOLERATED_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATED_SECONDS}",
        "--profiling=false",
    ]


def start_gcs(site: Site, programs: Programs, supervision: Supervision) -> None:
    """Start the server and wait until it listens.

    Raises:
        ServerError: it did not become ready.
    """
    site.buckets.mkdir(parents=True, exist_ok=True)
    command = [
        str(programs.path("fake-gcs-server")),
        "-scheme=http",
        f"-host={site.address}",
        f"-port={site.gcs_port}",
        f"-external-url={site.gcs_url}",
        f"-public-host={site.address}:{site.gcs_port}",
        f"-filesystem-root={site.buckets}",
        "-log-level=warn",
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.root)}
    server = ServerProcess.start("fake-gcs-server", command, site.logs / "fake-gcs-server.log", environment)
    health, pool = f"{site.gcs_url}/_internal/healthcheck", urllib3.PoolManager()
    supervision.keep(server).wait_ready(lambda: answers(health, pool), _GCS_READY_SECONDS)

"""The servers of the sandbox as child processes on loopback: etcd, Kubernetes' control plane, and a GCS server.

Authentication is by client certificates and tokens, authorization is RBAC. Service addresses are loopback addresses,
and `sandbox.serve` connects the API server to webhooks. The GCS server is fake-gcs-server. A server that ends is
restarted; operators run in `sandbox.operators`.
"""

import base64
import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import urllib3
import yaml

from sandbox.programs import Programs
from sandbox.site import Site, administrator, etcd

_POLL_SECONDS = 0.05
_LOG_LINES_SHOWN = 8
_PROBE_SECONDS = 1
_MAX_ENDS = 5
"""Number of ends within `_WINDOW_SECONDS` after which a server is not restarted again."""
_WINDOW_SECONDS = 60
_STOP_SECONDS = 10

_log = logging.getLogger(__name__)


def holds_within(seconds: float, condition: Callable[[], bool], poll_seconds: float = 0.1) -> bool:
    """Block until `condition()` is true. Return False if it is not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_seconds)
    return True


def log_end(log: Path, lines: int = _LOG_LINES_SHOWN) -> str:
    """Return the last lines of a log, for an error message."""
    shown = log.read_text(errors="replace").splitlines()[-lines:]
    return "\n  ".join([f"the end of {log}:", *shown])


class ServerError(RuntimeError):
    """Raised when a server did not become ready, or keeps ending. The message contains the end of its log."""


@dataclass
class ServerProcess:
    """A running server. The kernel kills it when its parent ends for any reason."""

    name: str
    command: list[str]
    log: Path
    environment: Mapping[str, str]
    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, name: str, command: list[str], log: Path, environment: Mapping[str, str]) -> "ServerProcess":
        """Start `command` with exactly `environment`, appending its output to `log`.

        Call it from a thread that lives as long as the server should: the kernel's parent-death signal is tied to the
        thread that forked.
        """
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                start_new_session=True,
            )
        return cls(name, command, log, environment, process)

    def wait_ready(self, ready: Callable[[], bool], timeout_seconds: float) -> None:
        """Block until `ready()` holds. Raises ServerError if it does not in time, or the process has ended."""
        settled = holds_within(timeout_seconds, lambda: not self.running() or ready(), _POLL_SECONDS)
        if not self.running():
            raise ServerError(f"{self.name} ended with exit code {self.process.returncode}; {log_end(self.log)}")
        if not settled:
            raise ServerError(f"{self.name} was not ready within {timeout_seconds:g} s; {log_end(self.log)}")

    def running(self) -> bool:
        return self.process.poll() is None

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM, then SIGKILL after `grace_seconds`. Returns when the process is gone."""
        self.process.terminate()
        try:
            self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def answers(url: str, pool: urllib3.PoolManager) -> bool:
    """Return whether an HTTP server of this machine answers `url` with 200. `pool` uses no proxy."""
    try:
        return pool.request("GET", url, timeout=_PROBE_SECONDS, retries=False).status == 200
    except (urllib3.exceptions.HTTPError, OSError):
        return False


@dataclass
class _Kept:
    server: ServerProcess
    ends: list[float] = field(default_factory=list[float])
    """Times of its latest ends, by the supervision's clock."""
    down: bool = False


@dataclass
class Supervision:
    """Restarts the servers of one site when they end. Use it from one thread, because the servers end with it."""

    pids: Path
    """Folder of the pid files."""
    clock: Callable[[], float] = time.monotonic
    _kept: list[_Kept] = field(default_factory=list[_Kept])

    def keep(self, server: ServerProcess) -> ServerProcess:
        self._kept.append(_Kept(server))
        self._write_pid(server)
        return server

    def tend(self) -> None:
        """Restart servers that have ended, at once the first time, then after 1, 2 and 4 seconds.

        Raises ServerError if a server keeps ending.
        """
        for kept in self._kept:
            ended = kept.server
            if not kept.down and not ended.running():
                self._note_end(kept)
            delay_seconds = 0 if len(kept.ends) == 1 else 2 ** (len(kept.ends) - 2)
            if kept.down and self.clock() >= kept.ends[-1] + delay_seconds:
                kept.server = ServerProcess.start(ended.name, ended.command, ended.log, ended.environment)
                kept.down = False
                self._write_pid(kept.server)

    def stop(self) -> None:
        """Stop all servers, clients first, because the API server waits for open watches."""
        for kept in reversed(self._kept):
            kept.server.stop(_STOP_SECONDS)
            (self.pids / kept.server.name).unlink(missing_ok=True)
        self._kept.clear()

    def _note_end(self, kept: _Kept) -> None:
        now, code = self.clock(), kept.server.process.returncode
        kept.ends = [*(moment for moment in kept.ends if now - moment < _WINDOW_SECONDS), now]
        if len(kept.ends) >= _MAX_ENDS:
            times = f"{len(kept.ends)} times within {_WINDOW_SECONDS} s, last with exit code {code}"
            raise ServerError(f"{kept.server.name} keeps ending: {times}; {log_end(kept.server.log)}")
        kept.down = True
        _log.warning("%s ended with exit code %s; restarting it", kept.server.name, code)

    def _write_pid(self, server: ServerProcess) -> None:
        self.pids.mkdir(parents=True, exist_ok=True)
        # Replaced as a whole, so that a reader always finds a pid.
        draft = self.pids / f".{server.name}"
        draft.write_text(str(server.process.pid))
        draft.replace(self.pids / server.name)


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


_LITTLE_MEMORY = {"GOGC": "50"}
"""Halves the API server's memory; the machine is shared with the training processes."""


def start_api(site: Site, programs: Programs, supervision: Supervision) -> None:
    """Start etcd and the API server. Returns when the API answers.

    Raises ServerError if one of them did not become ready.
    """
    health, pool = f"{site.etcd_url}/health", etcd(site)
    storage = _start("etcd", _etcd_flags(site), site, programs, supervision, _LITTLE_MEMORY)
    storage.wait_ready(lambda: answers(health, pool), _READY_SECONDS)
    api_server = _start("kube-apiserver", _api_server_flags(site), site, programs, supervision, _LITTLE_MEMORY)
    api_server.wait_ready(administrator(site).ready, _READY_SECONDS)


def start_controllers(site: Site, programs: Programs, supervision: Supervision) -> None:
    """Start the controller manager and the scheduler."""
    own_flags = {
        "controller-manager": [
            f"--service-account-private-key-file={site.pki / 'sa.key'}",
            f"--root-ca-file={site.pki / 'ca.crt'}",
            "--use-service-account-credentials=true",
            f"--controllers={','.join(_CONTROLLERS)}",
        ],
        "scheduler": [],
    }
    for name, flags in own_flags.items():
        kubeconfig = f"--kubeconfig={site.pki / f'{name}.kubeconfig'}"
        flags += [kubeconfig, "--leader-elect=false", "--secure-port=0"]
        _start(f"kube-{name}", flags, site, programs, supervision, _LITTLE_MEMORY)


def _start(
    name: str,
    flags: list[str],
    site: Site,
    programs: Programs,
    supervision: Supervision,
    variables: Mapping[str, str] = MappingProxyType({}),
) -> ServerProcess:
    command, log = [str(programs.path(name)), *flags], site.logs / f"{name}.log"
    environment = {"PATH": os.environ["PATH"], "HOME": str(site.root), **variables}
    return supervision.keep(ServerProcess.start(name, command, log, environment))


def erase(site: Site) -> None:
    """Delete every object of the cluster, so that the next cluster starts with only Kubernetes' own objects.

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
        f"--data-dir={site.root / 'etcd'}",
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


def _write_egress_configuration(site: Site) -> Path:
    # A Unix socket, because the API server has no HTTP proxy on a port without TLS. The name `@...` has no file, whose
    # path could be too long.
    proxy = {"proxyProtocol": "HTTPConnect", "transport": {"uds": {"udsName": f"@{site.egress_name}"}}}
    configuration = {
        "apiVersion": "apiserver.k8s.io/v1beta1",
        "kind": "EgressSelectorConfiguration",
        "egressSelections": [{"name": "cluster", "connection": proxy}],
    }
    path = site.root / "egress.yaml"
    path.write_text(yaml.safe_dump(configuration))
    return path


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
        f"--egress-selector-config-file={_write_egress_configuration(site)}",
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
        # GKE also runs it: pods that request google.com/tpu tolerate the taint of that name.
        "--enable-admission-plugins=ExtendedResourceToleration",
        # Pods on a machine that is out of touch should be evicted soon.
        f"--default-not-ready-toleration-seconds={TOLERATED_SECONDS}",
        f"--default-unreachable-toleration-seconds={TOLERATED_SECONDS}",
        "--profiling=false",
    ]


def start_gcs(site: Site, programs: Programs, supervision: Supervision) -> None:
    """Start the GCS server and wait until it listens. Raises ServerError if it did not become ready."""
    site.buckets.mkdir(parents=True, exist_ok=True)
    flags = [
        "-scheme=http",
        f"-host={site.address}",
        f"-port={site.gcs_port}",
        f"-external-url={site.gcs_url}",
        f"-public-host={site.address}:{site.gcs_port}",
        f"-filesystem-root={site.buckets}",
        # A line for each request, with the number of bytes of the answer.
        "-log-level=info",
    ]
    server = _start("fake-gcs-server", flags, site, programs, supervision)
    health, pool = f"{site.gcs_url}/_internal/healthcheck", urllib3.PoolManager()
    server.wait_ready(lambda: answers(health, pool), _GCS_READY_SECONDS)

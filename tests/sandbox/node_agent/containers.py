"""A container that runs for as long as a test needs it, and the server that commands in it are asked of."""

import signal
import ssl
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import websocket

from infra.remote_command import RemoteCommand
from sandbox.node_agent.environment import Mount
from sandbox.node_agent.kubelet_server import KubeletServer
from sandbox.node_agent.log_times import LogTimes
from sandbox.node_agent.pod_process import FOLDER_VARIABLE, Plan, PodProcess
from sandbox.site import Site

CLIENT = "apiserver-kubelet-client"
POD, CONTAINER = "train-0", "jax"


@contextmanager
def sleeping(folder: Path) -> Generator[PodProcess]:
    """A container with a host name, an environment and an /etc/hosts of its own."""
    (folder / "hosts").write_text("127.201.9.9\tmy-pod\n")
    process = PodProcess.start(
        Plan(
            command=["sleep", "600"],
            environment={"PATH": "/usr/bin:/bin", FOLDER_VARIABLE: str(folder), "ROLE": "leader"},
            hostname="my-pod",
            workdir=folder,
            mounts=[Mount(folder / "hosts", "/etc/hosts", read_only=False)],
            log=folder / "main.log",
        )
    )
    try:
        yield process
    finally:
        process.signal(signal.SIGKILL)
        process.wait()


@contextmanager
def served(site: Site, process: PodProcess | None) -> Generator[KubeletServer]:
    """The site's kubelet server, for which the container POD, CONTAINER of the namespace `team` is `process`."""

    def find(namespace: str, pod: str, container: str) -> PodProcess | None:
        return process if (namespace, pod, container) == ("team", POD, CONTAINER) else None

    server = KubeletServer(site, lambda *_: False, find, LogTimes(site.logs / "pods"))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def connect(site: Site, *command: str, protocol: str = "v5.channel.k8s.io", **flags: str) -> websocket.WebSocket:
    """As the API server asks a kubelet for a command."""
    context = ssl.create_default_context(cafile=str(site.pki / "ca.crt"))
    context.load_cert_chain(site.pki / f"{CLIENT}.crt", site.pki / f"{CLIENT}.key")
    query = urlencode([("command", word) for word in command] + list(flags.items()))
    return websocket.create_connection(
        f"wss://{site.address}:{site.kubelet_port}/exec/team/{POD}/{CONTAINER}?{query}",
        subprotocols=[protocol],
        sslopt={"context": context},
        http_no_proxy=["*"],
        timeout=60,
    )


def begin(site: Site, *command: str, **flags: str) -> RemoteCommand:
    """The command, with input, output and errors unless `flags` say otherwise."""
    asked = flags or {"input": "1", "output": "1", "error": "1"}
    return RemoteCommand(connect(site, *command, **asked), stdin=True)

"""The GCS server of the sandbox: fake-gcs-server on loopback, files below `site.buckets`."""

import os
import socket

from sandbox.programs import Programs
from sandbox.server_process import ServerProcess
from sandbox.site import Site
from sandbox.supervision import Supervision

_READY_SECONDS = 20


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
    supervision.keep(server).wait_ready(lambda: _listens(site.address, site.gcs_port), _READY_SECONDS)


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0

"""The sandbox's background process, `python -m sandbox.serve FOLDER`.

Starts every server and restarts it when it ends, and runs the operators, the node agent and the proxy in front of the
API server. Stops everything on SIGTERM, when a server keeps ending, or after `_LIFETIME_SECONDS`.
"""

import asyncio
import errno
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from sandbox import certificates, daemon
from sandbox.node_agent.agent import NodeAgent
from sandbox.operators import Operators
from sandbox.programs import found
from sandbox.servers import ServerError, Supervision, start_api, start_controllers, start_gcs
from sandbox.site import SITE_VARIABLE, Site, load, start_command

_LIFETIME_SECONDS = 12 * 3600
_LOCK_SECONDS = 5

_TARGET_PORTS = {443: Site.webhook_port}
"""Ports of Services whose programs listen on another port."""
_CHUNK_BYTES = 65536

_log = logging.getLogger(__name__)


class Egress:
    """The proxy of one site, which listens from the start.

    It carries the API server's connections to webhooks and kubelets, as konnectivity does in GKE. The API server asks
    for each connection with an HTTP CONNECT request. A Service's port 443 becomes the port on which its operator
    listens, because an ordinary user may not listen on ports below 1024.
    """

    def __init__(self, site: Site) -> None:
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind("\0" + site.egress_name)
        self._listening.listen()

    def run(self, stop: threading.Event) -> None:
        """Carry connections until `stop` is set, then close all of them."""
        asyncio.run(self._serve(stop))

    async def _serve(self, stop: threading.Event) -> None:
        server = await asyncio.start_unix_server(_carry, sock=self._listening)
        await asyncio.to_thread(stop.wait)
        server.close()
        server.abort_clients()


async def _carry(client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
    try:
        request = await client.readuntil(b"\r\n\r\n")
        host, _, port = request.split()[1].decode().rpartition(":")
        target, to_target = await asyncio.open_connection(host, _TARGET_PORTS.get(int(port), int(port)))
    except OSError as error:
        to_client.write(f"HTTP/1.1 502 {os.strerror(error.errno or errno.EIO)}\r\n\r\n".encode())
        to_client.close()
    except asyncio.IncompleteReadError:
        to_client.close()
    else:
        to_client.write(b"HTTP/1.1 200 OK\r\n\r\n")
        await asyncio.gather(_copy(client, to_target), _copy(target, to_client))


async def _copy(source: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    try:
        while chunk := await source.read(_CHUNK_BYTES):
            to.write(chunk)
            await to.drain()
    except ConnectionError:
        pass
    finally:
        to.close()


def serve(site: Site, stopping: threading.Event) -> int:
    """Run the sandbox until it is stopped. Return the exit status, 1 if a server could not stay up."""
    programs = found()
    supervision = Supervision(site.servers)
    workers: list[threading.Thread] = []

    def work(run: Callable[[threading.Event], None]) -> None:
        workers.append(threading.Thread(target=run, args=(stopping,)))
        workers[-1].start()

    try:
        daemon.report_phase(site, "certificates")
        certificates.ensure(site)
        daemon.report_phase(site, "storage")
        start_gcs(site, programs, supervision)
        daemon.report_phase(site, "API server")
        work(Egress(site).run)
        start_api(site, programs, supervision)
        start_controllers(site, programs, supervision)
        work(Operators(site, programs).run)
        work(NodeAgent(site, Path(sys.executable), daemon.CHECKOUT).run)
        daemon.report_phase(site, daemon.READY)
        return _watch(site, supervision, stopping)
    finally:
        stopping.set()
        for worker in workers:
            worker.join()
        supervision.stop()


def _watch(site: Site, supervision: Supervision, stopping: threading.Event) -> int:
    deadline = time.monotonic() + _LIFETIME_SECONDS
    while not stopping.wait(1):
        try:
            supervision.tend()
        except ServerError as error:
            _log.error("stopping the sandbox: %s", error)
            return 1
        if time.monotonic() > deadline:
            start = start_command(site.root)
            _log.warning("stopping after %d hours; `%s` starts it again", _LIFETIME_SECONDS // 3600, start)
            return 0
    return 0


def main() -> int:
    """Run the daemon of the site in the folder given as the only argument."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    site = load(Path(sys.argv[1]))
    os.environ[SITE_VARIABLE] = str(site.root)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    with daemon.lock(site).acquire(timeout=_LOCK_SECONDS):
        site.daemon_pid.write_text(str(os.getpid()))
        return serve(site, stopping)


if __name__ == "__main__":
    sys.exit(main())

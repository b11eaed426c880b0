"""Carries the API server's connections to webhooks and kubelets, as konnectivity does in GKE.

The API server asks for each connection with an HTTP CONNECT request. A Service's port 443 becomes the port on which its
operator listens, because an ordinary user may not listen on ports below 1024.
"""

import asyncio
import errno
import os
import socket
import threading
from pathlib import Path

import yaml

from sandbox.site import Site

_TARGET_PORTS = {443: Site.webhook_port}
"""Ports of Services whose programs listen on another port."""
_CHUNK_BYTES = 65536


class Egress:
    """The proxy of one site. It listens from the start."""

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


def write_configuration(site: Site) -> Path:
    """Write the file for the flag `--egress-selector-config-file` of the API server, and return its path."""
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

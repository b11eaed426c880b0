import socket
import threading
from collections.abc import Generator
from pathlib import Path

import pytest

from sandbox.serve import Egress
from sandbox.site import Site, create


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    """A site whose proxy runs."""
    site, stop = create(tmp_path), threading.Event()
    proxy = threading.Thread(target=Egress(site).run, args=(stop,))
    proxy.start()
    yield site
    stop.set()
    proxy.join(10)
    assert not proxy.is_alive(), "a connection that is still open holds up the end"


def connected(site: Site, target: str) -> tuple[socket.socket, bytes]:
    """A connection to the target, asked for as the API server does, and the answer."""
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(10)
    client.connect("\0" + site.egress_name)
    client.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        answer += client.recv(1)
    return client, answer


def test_other_ports_stay_as_they_are_and_the_end_closes_open_connections(site: Site):
    with socket.create_server((site.address, site.kubelet_port)):
        _, answer = connected(site, f"{site.address}:{site.kubelet_port}")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_target_that_refuses_is_an_answer_with_the_reason(site: Site):
    client, answer = connected(site, f"{site.address}:{site.kubelet_port}")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert b"refused" in answer
    client.close()

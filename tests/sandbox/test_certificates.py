import ssl
import stat
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

import pytest

from sandbox import certificates
from sandbox.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("site"), 64)
    certificates.ensure(site)
    return site


class Hello(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_pythons_strict_verification_accepts_server_and_client(site: Site):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=site.pki / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(site.pki / "kubelet.crt", site.pki / "kubelet.key")
    server = HTTPServer((site.address, 0), Hello)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.handle_request)
    thread.start()
    client = ssl.create_default_context(cafile=str(site.pki / "trust.crt"))
    client.load_cert_chain(site.pki / "admin.crt", site.pki / "admin.key")
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=client))
    with opener.open(f"https://{site.address}:{server.server_port}/", timeout=5) as answer:
        assert answer.status == 200
    thread.join()
    server.server_close()


def test_only_their_owner_can_read_keys(site: Site):
    keys = [*site.pki.glob("*.key"), *site.pki.glob("*token*"), site.kubeconfig]
    assert len(keys) > 5
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_the_administrators_token_is_known_to_the_api_server(site: Site):
    token, user, _, group = (site.pki / "tokens.csv").read_text().strip().split(",")
    assert token == (site.pki / "admin.token").read_text()
    assert (user, group) == ("sandbox-admin", "system:masters")


def test_the_keys_of_etcd_belong_together(site: Site):
    context = ssl.create_default_context(cafile=str(site.pki / "trust.crt"))
    context.load_cert_chain(site.pki / "etcd.crt", site.pki / "etcd.key")


def test_a_second_call_changes_nothing(site: Site):
    before = {path: path.read_bytes() for path in site.pki.iterdir()}
    certificates.ensure(site)
    assert {path: path.read_bytes() for path in site.pki.iterdir()} == before

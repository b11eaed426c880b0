"""The Kubernetes client."""

import base64
import json
import socket
import ssl
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from email.message import Message
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from urllib3 import HTTPResponse, PoolManager
from urllib3.exceptions import HTTPError

from infra.cluster.kubeconfig import read_access
from infra.cluster.kubernetes import ApiError, ApiServer, CredentialsError, Json, kubeconfig
from sandbox import certificates
from sandbox.providers.cluster import Cluster
from sandbox.site import Site
from tests.cli.api_server import serving


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    site = Site(tmp_path_factory.mktemp("site"), 64)
    certificates.ensure(site)
    return site


@contextmanager
def receiving(
    address: str, note: Callable[[BaseHTTPRequestHandler], object], tls: ssl.SSLContext | None = None
) -> Generator[int]:
    """An HTTP server on a port of this address that notes each request, has an empty object for it, and no tunnel."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            note(self)
            self.send_response(200 if self.command == "GET" else 502)
            self.end_headers()
            self.wfile.write(b"{}")

        do_CONNECT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((address, 0), Answer)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    with serving(server):
        yield server.server_port


@pytest.fixture
def credentials(site: Site, monkeypatch: pytest.MonkeyPatch) -> Generator[tuple[str, list[str]]]:
    """An endpoint, and the credentials that each of its requests came with."""
    seen: list[str] = []
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(site.pki / "kubelet.crt", site.pki / "kubelet.key")
    monkeypatch.setenv("SSL_CERT_FILE", str(site.pki / "trust.crt"))
    with receiving(site.address, lambda each: seen.append(each.headers.get("Authorization", "none")), context) as port:
        yield f"{site.address}:{port}", seen


def plugin(folder: Path, monkeypatch: pytest.MonkeyPatch, *, ends: str) -> None:
    """A credential plugin that gives token-1, token-2 and so on, each valid until `ends`."""
    count, program = folder / "count", folder / "gke-gcloud-auth-plugin"
    count.write_text("")
    status: dict[str, Any] = {"token": "token-NUMBER", "expirationTimestamp": ends}
    answer = {"apiVersion": "client.authentication.k8s.io/v1beta1", "kind": "ExecCredential", "status": status}
    program.write_text(
        f"#!/bin/sh\nprintf x >> {count}\necho '{json.dumps(answer)}' | sed s/NUMBER/$(wc -c < {count})/\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_a_token_that_holds_is_used_for_every_request(
    credentials: tuple[str, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    endpoint, seen = credentials
    plugin(tmp_path, monkeypatch, ends="2999-01-01T00:00:00Z")
    api = ApiServer.at(endpoint)
    api.request("GET", "/one")
    api.request("GET", "/two")
    assert seen == ["Bearer token-1", "Bearer token-1"]


def commands(endpoint: str) -> Callable[[], object]:
    return partial(ApiServer.at(endpoint).request, "GET", "/one")


def sandbox_plugin(endpoint: str) -> Callable[[], object]:
    return partial(Cluster.connect(kubeconfig(endpoint), None).server.request, "GET", "/one")


@pytest.mark.parametrize("user", [commands, sandbox_plugin])
def test_a_token_that_has_ended_is_renewed(
    user: Callable[[str], Callable[[], object]],
    credentials: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    endpoint, seen = credentials
    plugin(tmp_path, monkeypatch, ends="2001-01-01T00:00:00Z")
    ask = user(endpoint)
    ask()
    ask()
    first, second = seen[-2:]
    assert "Bearer token-1" not in (first, second)
    assert first.startswith("Bearer token-")
    assert second.startswith("Bearer token-")
    assert first != second


def _kubeconfig(site: Site, endpoint: str, path: Path) -> None:
    """Two contexts of one cluster: `first` without a namespace, and `second`, the current one, with one."""
    cluster = {"server": f"https://{endpoint}", "certificate-authority": str(site.pki / "ca.crt")}
    contexts = {"first": {}, "second": {"namespace": "research"}}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "second",
        "clusters": [{"name": "any", "cluster": cluster}],
        "users": [{"name": "any", "user": {"token": "ours"}}],
        "contexts": [
            {"name": name, "context": {"cluster": "any", "user": "any", **at}} for name, at in contexts.items()
        ],
    }
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(("context", "namespace"), [(None, "research"), ("first", "default")])
def test_a_kubeconfig_has_cluster_user_and_namespace(
    site: Site, credentials: tuple[str, list[str]], tmp_path: Path, context: str | None, namespace: str
) -> None:
    endpoint, seen = credentials
    path = tmp_path / "config"
    _kubeconfig(site, endpoint, path)
    server, found = ApiServer.of_kubeconfig(str(path), context)
    server.request("GET", "/version")
    assert (found, seen) == (namespace, ["Bearer ours"])


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    path = tmp_path / "config"
    with pytest.raises(CredentialsError, match=f"^there is no file {path}$"):
        ApiServer.of_kubeconfig(str(path), None)


def test_a_missing_context_is_named_with_those_that_exist(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "config"
    _kubeconfig(site, "127.0.0.1:1", path)
    with pytest.raises(CredentialsError, match=f"^{path} has no context 'third'; its contexts are: first, second$"):
        ApiServer.of_kubeconfig(str(path), "third")
    path.write_text(json.dumps(json.loads(path.read_text()) | {"current-context": ""}))
    with pytest.raises(CredentialsError, match=f"^{path} has no current context; its contexts are: first, second$"):
        ApiServer.of_kubeconfig(str(path), None)


def _write(folder: Path, cluster: Json, user: Json) -> str:
    """Write three files that KUBECONFIG lists: one that is missing, the user's, and one with all else but also a user.

    Return the variable's value. Paths in the files are relative.
    """
    first, second = folder / "user" / "config", folder / "rest" / "config"
    for path in (first, second):
        path.parent.mkdir()
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    first.write_text(json.dumps({"users": [{"name": "c", "user": user}]}))
    rest = {"clusters": [{"name": "c", "cluster": cluster}], "users": [{"name": "c", "user": {"token": "wrong"}}]}
    second.write_text(json.dumps({**rest, "contexts": [context], "current-context": "c"}))
    return f"{folder / 'none'}:{first}:{second}"


@pytest.mark.parametrize(
    ("user", "sent"),
    [
        ({"tokenFile": "token"}, "Bearer of-file"),
        ({"token": "of-block\n"}, "Bearer of-block"),
        ({"username": "ann", "password": "word"}, "Basic YW5uOndvcmQ="),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": "of-provider"}}}, "Bearer of-provider"),
        ({"exec": {"command": "./plugin", "args": ["of-plugin"], "apiVersion": "v1"}}, "Bearer of-plugin-word"),
        ({}, "none"),
    ],
)
def test_each_kind_of_user_sends_its_credentials(
    user: Json,
    sent: str,
    site: Site,
    credentials: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, seen = credentials
    authority = base64.b64encode((site.pki / "ca.crt").read_bytes()).decode()
    if "exec" in user:
        user["exec"]["env"] = [{"name": "WORD", "value": "word"}]
    paths = _write(tmp_path, {"server": f"https://{endpoint}/", "certificate-authority-data": authority}, user)
    (tmp_path / "user" / "token").write_text("of-file\n")
    program = tmp_path / "user" / "plugin"
    program.write_text('#!/bin/sh\necho "{\\"status\\": {\\"token\\": \\"$1-$WORD\\"}}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("KUBECONFIG", paths)
    ApiServer.of_kubeconfig(None, None)[0].request("GET", "/one")
    assert seen == [sent]


@pytest.mark.parametrize(
    ("cluster", "is_trusted"),
    [
        ({}, False),
        ({"insecure-skip-tls-verify": True}, True),
        ({"certificate-authority": "ca.crt"}, True),
        ({"certificate-authority": "ca.crt", "tls-server-name": "localhost"}, True),
        ({"certificate-authority": "ca.crt", "tls-server-name": "another"}, False),
    ],
)
def test_a_server_is_trusted_as_the_kubeconfig_says(
    cluster: Json,
    is_trusted: bool,
    site: Site,
    credentials: tuple[str, list[str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint, seen = credentials
    monkeypatch.delenv("SSL_CERT_FILE")
    paths = _write(tmp_path, {"server": f"https://{endpoint}", **cluster}, {"token": "ours"})
    (tmp_path / "rest" / "ca.crt").write_bytes((site.pki / "ca.crt").read_bytes())
    api = ApiServer.of_kubeconfig(paths, None)[0]
    with nullcontext() if is_trusted else pytest.raises(HTTPError):
        api.request("GET", "/one")
    assert seen == (["Bearer ours"] if is_trusted else [])


@pytest.mark.parametrize("of_plugin", [False, True])
def test_a_key_pair_identifies_its_user(of_plugin: bool, site: Site, tmp_path: Path) -> None:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=site.pki / "ca.crt")
    context.load_cert_chain(site.pki / "kubelet.crt", site.pki / "kubelet.key")
    context.verify_mode = ssl.CERT_REQUIRED
    pair = [(site.pki / f"kubelet.{each}").read_text() for each in ("crt", "key")]
    user: Json = {
        f"client-{name}-data": base64.b64encode(text.encode()).decode()
        for name, text in zip(("certificate", "key"), pair, strict=True)
    }
    if of_plugin:
        status = dict(zip(("clientCertificateData", "clientKeyData"), pair, strict=True))
        (tmp_path / "status").write_text(json.dumps({"status": status}))
        user = {"exec": {"command": "cat", "args": [str(tmp_path / "status")], "apiVersion": "v1"}}
    with socket.create_server((site.address, 0)) as listening:
        server = f"https://{site.address}:{listening.getsockname()[1]}"
        paths = _write(tmp_path, {"server": server, "certificate-authority": str(site.pki / "ca.crt")}, user)
        api = ApiServer.of_kubeconfig(paths, None)[0]
        with ThreadPoolExecutor() as threads:
            asked = threads.submit(api.ready)
            with context.wrap_socket(listening.accept()[0], server_side=True) as connection:
                seen = connection.getpeercert()
            asked.result()
    assert seen


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        ({"command": "no-such-plugin", "installHint": "install this"}, "No such file or directory; install this"),
        ({"command": "false"}, "exit status 1: "),
        ({"command": "echo", "args": ["{}"]}, "expected an ExecCredential, got"),
        ({"command": "echo", "args": ['{"status": {}}']}, "it gave neither a token nor a certificate"),
        ({"command": "echo", "args": ['{"status": {"token": "secret", }}']}, "expected an ExecCredential, got '{'$"),
        *(
            (
                {"command": "echo", "args": [json.dumps({"status": {"token": "secret", "expirationTimestamp": ends}})]},
                f"expected a time with its zone as expirationTimestamp, got {ends!r}$",
            )
            for ends in ("soon", "2030-01-01T00:00:00", 5)
        ),
    ],
)
def test_a_plugin_that_fails_is_named_with_the_reason(plugin: Json, why: str, tmp_path: Path) -> None:
    paths = _write(tmp_path, {"server": "https://127.0.0.1:1"}, {"exec": {**plugin, "apiVersion": "v1"}})
    with pytest.raises(CredentialsError, match=f"^the credential plugin {plugin['command']} failed: {why}"):
        ApiServer.of_kubeconfig(paths, None)


@pytest.mark.parametrize("token", ["se\ncret", "secr€t"])
@pytest.mark.parametrize("in_file", [False, True])
def test_a_token_that_no_header_can_have_is_not_printed(token: str, in_file: bool, tmp_path: Path) -> None:
    paths = _write(tmp_path, {"server": "http://127.0.0.1:1"}, {"tokenFile": "token"} if in_file else {"token": token})
    (tmp_path / "user" / "token").write_text(token)
    with pytest.raises(CredentialsError, match=r"^the token has characters other than printable ASCII$"):
        ApiServer.of_kubeconfig(paths, None)[0].request("GET", "/one")


@pytest.fixture
def requests() -> Generator[tuple[str, list[tuple[str, Message]]]]:
    """An HTTP server without TLS, and the line and headers of each request that it received."""
    seen: list[tuple[str, Message]] = []
    with receiving("127.0.0.1", lambda each: seen.append((each.requestline, each.headers))) as port:
        yield f"127.0.0.1:{port}", seen


@pytest.mark.parametrize("in_variable", [False, True])
@pytest.mark.parametrize(("scheme", "line"), [("http", "GET http://k8s.invalid/one"), ("https", "CONNECT k8s.invalid")])
def test_a_proxy_is_used(
    in_variable: bool,
    scheme: str,
    line: str,
    requests: tuple[str, list[tuple[str, Message]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address, seen = requests
    cluster = {"server": f"{scheme}://k8s.invalid", "proxy-url": f"http://ann:w%40rd@{address}"}
    if in_variable:
        del cluster["proxy-url"]
        monkeypatch.setenv(f"{scheme}_proxy", f"ann:w%40rd@{address}")
        monkeypatch.setenv("no_proxy", "example.com")
    api = ApiServer.of_kubeconfig(_write(tmp_path, cluster, {"token": "ours"}), None)[0]
    with nullcontext() if scheme == "http" else pytest.raises(HTTPError):
        api.request("GET", "/one")
    requested, headers = seen[0]
    assert requested.startswith(line)
    assert headers["Proxy-Authorization"] == "Basic YW5uOndAcmQ="


@pytest.mark.parametrize(
    ("host", "is_direct"),
    [
        ("k8s.example.com", True),
        ("10.1.2.3", True),
        ("127.64.0.1", True),
        ("localhost", True),
        ("[::1]", True),
        ("11.1.2.3", False),
        ("example.org", False),
    ],
)
def test_hosts_of_no_proxy_and_this_machine_are_reached_directly(
    host: str, is_direct: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.invalid:3128")
    monkeypatch.setenv("no_proxy", ".example.com,10.0.0.0/8,a/b")
    paths = _write(tmp_path, {"server": f"https://{host}:6443"}, {"token": "ours"})
    assert read_access(paths, None).proxy == (None if is_direct else "http://proxy.invalid:3128")


def test_a_proxy_that_is_not_http_is_an_error_without_its_password(tmp_path: Path) -> None:
    cluster = {"server": "https://k8s.invalid", "proxy-url": "socks5://ann:secret@127.0.0.1:1080"}
    with pytest.raises(
        CredentialsError, match=r"^the proxy has a URL of socks5, which is not supported; use one of http or https$"
    ):
        ApiServer.of_kubeconfig(_write(tmp_path, cluster, {"token": "ours"}), None)


def test_a_user_who_acts_as_another_says_so(requests: tuple[str, list[tuple[str, Message]]], tmp_path: Path) -> None:
    address, seen = requests
    user: Json = {"token": "ours", "as": "bob", "as-uid": "7", "as-groups": ["one", "two"]}
    paths = _write(tmp_path, {"server": f"http://{address}"}, user)
    ApiServer.of_kubeconfig(paths, None)[0].request("GET", "/one")
    ((_, headers),) = seen
    sent = {name: headers.get_all(f"Impersonate-{name}") for name in ("User", "Uid", "Group")}
    assert sent == {"User": ["bob"], "Uid": ["7"], "Group": ["one", "two"]}
    assert headers["Authorization"] == "Bearer ours"


def test_extra_fields_of_another_user_are_an_error(tmp_path: Path) -> None:
    paths = _write(tmp_path, {"server": "http://127.0.0.1:1"}, {"as": "bob", "as-user-extra": {"a": ["b"]}})
    with pytest.raises(CredentialsError, match="as-user-extra"):
        ApiServer.of_kubeconfig(paths, None)


@pytest.mark.parametrize("content", [b"<html>", b"[]", b"null", b"\xff"])
def test_an_answer_that_is_no_json_object_is_an_error(content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = PoolManager()
    monkeypatch.setattr(pool, "request", lambda *_, **__: HTTPResponse(content, status=200))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with pytest.raises(ApiError, match="^expected a JSON object from http://any, got "):
        ApiServer("http://any", pool).find("/one")


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{}",
        "[]",
        "a: b: c",
        "word",
        "\x00",
        "contexts: {}",
        "contexts: [one]",
        "{current-context: a, contexts: [{name: a}]}",
        "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}]}",
        "{current-context: a, contexts: [{name: a, context: {cluster: b, user: c}}], clusters: [{name: b}]}",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(content: str, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(CredentialsError, match=f"^{path}"):
        ApiServer.of_kubeconfig(str(path), None)

"""Reads the access to a cluster from kubeconfigs, as kubectl does, and runs their credential plugins.

The official client can do this as well. It would be most of what an installation of the commands stores and loads: 37
MB and 0.3 s of processor time.
"""

import base64
import json
import os
import ssl
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any
from urllib.request import getproxies, proxy_bypass

import urllib3
import yaml
from urllib3.util import parse_url
from urllib3.util.ssl_ import create_urllib3_context

type Json = dict[str, Any]

_RENEWED_BEFORE = timedelta(minutes=5)
"""Time before the end of a token at which its plugin is asked for another."""
SHAPE_ERRORS = (yaml.YAMLError, ValueError, TypeError, AttributeError, KeyError)
"""Errors of reading a file that has not the form of a kubeconfig."""


class CredentialsError(RuntimeError):
    """Raised when a kubeconfig cannot be used, or its credential plugin is missing or returns no credentials."""


@dataclass(frozen=True)
class Access:
    """How to reach an API server as one user."""

    url: str
    namespace: str
    """Namespace of the context. Default: `default`."""
    tls: ssl.SSLContext
    server_name: str | None
    """Name in the server's certificate. None: that of the URL."""
    proxy: str | None
    """URL of the HTTP proxy. None: connections are direct."""
    credentials: Callable[[], Mapping[str, str]]
    """Returns the headers of a request. It may run the credential plugin, because tokens expire."""


def read_access(file: str | None, context: str | None) -> Access:
    """Read the access of a context, as kubectl chooses it: by default the files in KUBECONFIG or ~/.kube/config, and
    their current context. The credential plugin runs at once.

    Raises:
        CredentialsError: there is no such file or context, the file cannot be read, or its credential plugin fails.
    """
    named = file or os.environ.get("KUBECONFIG") or "~/.kube/config"
    paths = [Path(each).expanduser() for each in named.split(os.pathsep) if each]
    shown = ", ".join(map(str, paths))
    present = [path for path in paths if path.exists()]
    if not present:
        raise CredentialsError(f"there is no file {shown}")
    try:
        read = [(yaml.load(path.read_text(), yaml.CSafeLoader), path.parent) for path in present]
        # An empty file has no content, and kubectl goes on to the next.
        return access([(content, folder) for content, folder in read if content is not None], context, shown)
    except (OSError, *SHAPE_ERRORS) as error:
        raise CredentialsError(f"{shown} is no kubeconfig: {type(error).__name__}: {error}") from error


def access(configs: Sequence[tuple[Json, Path]], context: str | None, shown: str) -> Access:
    """Return the access of a context. `configs` has contents of files with their folders; earlier ones count more.

    `shown` names the files in messages.

    Raises:
        CredentialsError: there is no such context, or its credential plugin fails.
        OSError, ValueError, TypeError, AttributeError, KeyError: a file has another form, or names one that is missing.
    """
    contexts = _named(configs, "context")
    chosen = context or next((name for content, _ in configs if (name := content.get("current-context"))), None)
    if chosen not in contexts:
        missing = f"context {chosen!r}" if chosen else "current context"
        raise CredentialsError(f"{shown} has no {missing}; its contexts are: {', '.join(contexts) or 'none'}")
    at = contexts[chosen].values
    clusters, users = _named(configs, "cluster"), {"": _Entry({}, Path()), **_named(configs, "user")}
    for kind, known in (("cluster", clusters), ("user", users)):
        if (name := at.get(kind) or "") not in known:
            raise CredentialsError(f"{shown} has no {kind} {name!r}, which its context {chosen!r} names")
    cluster, user = clusters[at["cluster"]], users[at.get("user") or ""]
    (headers, key_pair), impersonated = _credentials(user, cluster), _impersonation(user)
    url = cluster.values["server"].rstrip("/")
    return Access(
        url,
        str(at.get("namespace") or "default"),
        _tls(cluster, *key_pair),
        cluster.values.get("tls-server-name"),
        _proxy(cluster, url),
        lambda: urllib3.HTTPHeaderDict(headers()) | impersonated,
    )


@dataclass(frozen=True)
class _Entry:
    """A cluster, user or context, and the folder of its file."""

    values: Json
    folder: Path

    def content(self, key: str) -> str:
        """Return the content that is in the file or in another that it names. Empty: neither."""
        if data := self.values.get(f"{key}-data"):
            return base64.b64decode(data).decode()
        return (self.folder / name).read_text() if (name := self.values.get(key)) else ""


def _named(configs: Sequence[tuple[Json, Path]], kind: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for content, folder in configs:
        for each in content.get(f"{kind}s") or ():
            found.setdefault(str(each["name"]), _Entry(each[kind] or {}, folder))
    return found


def _credentials(user: _Entry, cluster: _Entry) -> tuple[Callable[[], Mapping[str, str]], tuple[str, str]]:
    """Return `Access.credentials` of the user, and the user's certificate and key, both empty if there are none."""
    values, key_pair = user.values, (user.content("client-certificate"), user.content("client-key"))
    if name := values.get("tokenFile"):
        # Whoever writes the file renews it.
        return (lambda: _bearer((user.folder / name).read_text(errors="replace"))), key_pair
    provider: Json = values.get("auth-provider") or {}
    fixed: Mapping[str, str] = {}
    # Only kubectl renews a token of OpenID Connect. It writes it to the file.
    if token := values.get("token") or (provider.get("config") or {}).get("id-token"):
        fixed = _bearer(token)
    elif provider:
        raise CredentialsError(f"kubectl no longer has the auth-provider {provider['name']}; use a credential plugin")
    elif plugin := values.get("exec"):
        asked = _Plugin(plugin, user.folder, cluster)
        status = asked.status()
        of_plugin = (status.get("clientCertificateData", ""), status.get("clientKeyData", ""))
        return asked.headers, of_plugin if all(of_plugin) else key_pair
    elif "username" in values and "password" in values:
        fixed = urllib3.make_headers(basic_auth=f"{values['username']}:{values['password']}")
    return (lambda: fixed), key_pair


def _bearer(token: object) -> Mapping[str, str]:
    return {"Authorization": f"Bearer {_sendable('the token', token)}"}


def _sendable(name: str, value: object) -> str:
    """Return a value for a header. Messages do not have it, because it may be secret."""
    text = str(value).strip()
    if not (text.isascii() and text.isprintable()):
        raise CredentialsError(f"{name} has characters other than printable ASCII")
    return text


def _impersonation(user: _Entry) -> urllib3.HTTPHeaderDict:
    """Return the headers with which a user acts as another. There is one header for each group."""
    if "as-user-extra" in user.values:
        raise CredentialsError("the user has as-user-extra, which is not supported; use kubectl, or another user")
    headers = urllib3.HTTPHeaderDict()
    for key, header in (("as", "User"), ("as-uid", "Uid"), ("as-groups", "Group")):
        given = user.values.get(key) or ()
        for each in (given,) if isinstance(given, str) else given:
            headers.add(f"Impersonate-{header}", _sendable(f"a value of {key}", each))
    return headers


def _proxy(cluster: _Entry, server: str) -> str | None:
    """Return the proxy of a server, which the cluster names or, as for kubectl, HTTPS_PROXY and NO_PROXY."""
    at = parse_url(server)
    chosen = cluster.values.get("proxy-url")
    if not chosen and not _is_direct((at.host or "").strip("[]")):
        chosen = getproxies().get(at.scheme or "")
    if not chosen:
        return None
    url = chosen if "://" in chosen else f"http://{chosen}"
    if (scheme := parse_url(url).scheme) not in ("http", "https"):
        raise CredentialsError(f"the proxy has a URL of {scheme}, which is not supported; use one of http or https")
    return url


def _is_direct(host: str) -> bool:
    """Return whether NO_PROXY has the host or its network, or it is this machine, which kubectl reaches directly."""
    if host == "localhost" or proxy_bypass(host):
        return True
    with suppress(ValueError):  # A name has no network.
        address = ip_address(host)
        return address.is_loopback or any(address in each for each in _direct_networks())
    return False


def _direct_networks() -> Iterator[IPv4Network | IPv6Network]:
    for each in getproxies().get("no", "").split(","):
        with suppress(ValueError):
            yield ip_network(each.strip(), strict=False)


def _tls(cluster: _Entry, certificate: str, key: str) -> ssl.SSLContext:
    made = create_urllib3_context()
    if cluster.values.get("insecure-skip-tls-verify"):
        made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    elif authority := cluster.content("certificate-authority"):
        made.load_verify_locations(cadata=authority)
    else:
        made.load_default_certs()
    if certificate:
        # Python reads key pairs only from files. No other user may read this one.
        with tempfile.NamedTemporaryFile("w", delete_on_close=False) as pair:
            pair.write(f"{certificate}\n{key}")
            pair.close()
            made.load_cert_chain(pair.name)
    return made


@dataclass
class _Plugin:
    """The credential plugin of a user
    (https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins)."""

    settings: Json
    folder: Path
    """Folder of the kubeconfig, from which a relative path of a command starts."""
    cluster: _Entry
    _status: Json | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def headers(self) -> Mapping[str, str]:
        """Return the header with the token, if the plugin gives one."""
        token = self.status().get("token")
        return _bearer(token) if token else {}

    def status(self) -> Json:
        """Return the credentials. The plugin runs if it has not, or if they are about to end."""
        with self._lock:
            ends = (self._status or {}).get("expirationTimestamp")
            if self._status is None or (ends and datetime.fromisoformat(ends) - _RENEWED_BEFORE <= datetime.now(UTC)):
                self._status = self._run()
            return self._status

    def _run(self) -> Json:
        command = self.settings["command"]
        program = str((self.folder / command).absolute()) if os.sep in command else command
        interactive = self.settings.get("interactiveMode") != "Never" and sys.stdin.isatty()
        ended: subprocess.CompletedProcess[str] | None = None
        try:
            ended = subprocess.run(
                [program, *(self.settings.get("args") or ())],
                env=os.environ | self._variables(interactive),
                stdin=None if interactive else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=None if interactive else subprocess.PIPE,
                text=True,
                check=True,
            )
            status: Json = json.loads(ended.stdout)["status"]
            ends = status.get("expirationTimestamp")
            if not _is_time(ends):
                why = f"expected a time with its zone as expirationTimestamp, got {ends!r}"
            elif status.get("token") or (status.get("clientCertificateData") and status.get("clientKeyData")):
                return status
            else:
                why = "it gave neither a token nor a certificate with its key"
        except subprocess.CalledProcessError as error:
            why = f"exit status {error.returncode}: {(error.stderr or '').strip()}"
        except OSError as error:
            why = f"{error.strerror}; {self.settings.get('installHint') or 'install it'}"
        except (ValueError, KeyError, TypeError, AttributeError):
            # What follows may have a token.
            got = ended.stdout.partition('"status"')[0][:100] if ended else ""
            why = f"expected an ExecCredential, got {got!r}"
        raise CredentialsError(f"the credential plugin {command} failed: {why}")

    def _variables(self, interactive: bool) -> dict[str, str]:
        spec: Json = {"interactive": interactive}
        if self.settings.get("provideClusterInfo"):
            extensions = self.cluster.values.get("extensions") or ()
            own = [each["extension"] for each in extensions if each["name"] == "client.authentication.k8s.io/exec"]
            spec["cluster"] = {**self.cluster.values, **({"config": own[0]} if own else {})}
        info = {"apiVersion": self.settings["apiVersion"], "kind": "ExecCredential", "spec": spec}
        own_variables = {each["name"]: each["value"] for each in self.settings.get("env") or ()}
        return own_variables | {"KUBERNETES_EXEC_INFO": json.dumps(info)}


def _is_time(ends: object) -> bool:
    """Return whether it is a time with its zone, or None, which means that the credentials do not end."""
    try:
        return ends is None or datetime.fromisoformat(str(ends)).tzinfo is not None
    except ValueError:
        return False

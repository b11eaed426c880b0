"""The sandbox's own certificate authority and every key pair that it signs.

All keys are created once per sandbox and kept, so tokens and kubeconfigs survive a restart. Only the sandbox's owner
may read them, because every server listens on loopback, where other users of the machine can also reach it.
"""

import base64
import datetime
import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import certifi
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from sandbox.site import Site

_VALIDITY = datetime.timedelta(days=3650)

_ADMIN, _ADMINS = "sandbox-admin", "system:masters"
"""The administrator and the group that has every right."""

API_SERVER_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")

_SIGNS_CERTIFICATES = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=True,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class KeyPair:
    """A certificate and its private key."""

    certificate: x509.Certificate
    key: rsa.RSAPrivateKey

    @property
    def certificate_pem(self) -> bytes:
        return self.certificate.public_bytes(serialization.Encoding.PEM)


def authority(common_name: str, dns_names: Sequence[str] = ()) -> KeyPair:
    """Return a new certificate authority."""
    constraints = x509.BasicConstraints(ca=True, path_length=None)
    critical: dict[x509.ExtensionType, bool] = {constraints: True, _SIGNS_CERTIFICATES: True}
    return _issue(None, {NameOID.COMMON_NAME: common_name}, critical, dns_names)


def sign(
    issuer: KeyPair,
    common_name: str,
    *,
    organization: str | None = None,
    dns_names: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> KeyPair:
    """Return a key pair for a server (`dns_names`, `addresses`) or a client (`common_name`, `organization`)."""
    usages = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    subject = {NameOID.COMMON_NAME: common_name} | ({NameOID.ORGANIZATION_NAME: organization} if organization else {})
    return _issue(issuer, subject, {usages: False}, dns_names, addresses)


def write(pair: KeyPair, folder: Path, name: str) -> None:
    """Write `NAME.crt`, and `NAME.key` so that only its owner can read it."""
    (folder / f"{name}.crt").write_bytes(pair.certificate_pem)
    _write_private(folder / f"{name}.key", _pem(pair.key))


def ensure(site: Site) -> None:
    """Make the site's certificates, keys and kubeconfigs unless they exist.

    Files in `site.pki`: `ca`, `apiserver`, `apiserver-kubelet-client`, `kubelet`, `admin`, `controller-manager`,
    `scheduler`, `etcd` (each `.crt` and `.key`), `sa.key` and `sa.pub` for ServiceAccount tokens, `trust.crt` (this CA
    and the public ones), a `.kubeconfig` for each client, and `admin.token`, which the API server knows from
    `tokens.csv`.
    """
    # The bundle is written last, so its presence means that everything is complete.
    complete = site.pki / "trust.crt"
    if complete.exists():
        return
    site.pki.mkdir(parents=True, exist_ok=True)
    ca = authority("tpu-multislice-sandbox")
    write(ca, site.pki, "ca")
    for name, dns_names in {"apiserver": API_SERVER_NAMES, "kubelet": ("localhost",), "etcd": ()}.items():
        write(sign(ca, name, dns_names=dns_names, addresses=[site.address]), site.pki, name)
    write(sign(ca, "apiserver-kubelet-client", organization=_ADMINS), site.pki, "apiserver-kubelet-client")
    _write_clients(site, ca)
    _write_tokens(site.pki)
    complete.write_bytes(Path(certifi.where()).read_bytes() + ca.certificate_pem)


def kubeconfig(server: str, ca_pem: bytes, user: dict[str, str]) -> str:
    """Return a kubeconfig of one cluster and one user, as YAML."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(ca_pem).decode()}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": user}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }
    return yaml.safe_dump(content, sort_keys=False)


def _write_clients(site: Site, ca: KeyPair) -> None:
    clients = {
        "admin": (_ADMIN, _ADMINS, site.kubeconfig),
        "controller-manager": ("system:kube-controller-manager", None, site.pki / "controller-manager.kubeconfig"),
        "scheduler": ("system:kube-scheduler", None, site.pki / "scheduler.kubeconfig"),
    }
    for name, (user, group, path) in clients.items():
        pair = sign(ca, user, organization=group)
        write(pair, site.pki, name)
        credentials = {
            "client-certificate-data": base64.b64encode(pair.certificate_pem).decode(),
            "client-key-data": base64.b64encode(_pem(pair.key)).decode(),
        }
        _write_private(path, kubeconfig(site.api_server_url, ca.certificate_pem, credentials).encode())


def _write_tokens(folder: Path) -> None:
    """The administrator's token, and the keys that sign and verify tokens of ServiceAccounts."""
    token, key = secrets.token_urlsafe(), _new_key()
    _write_private(folder / "admin.token", token.encode())
    _write_private(folder / "tokens.csv", f"{token},{_ADMIN},{_ADMIN},{_ADMINS}\n".encode())
    _write_private(folder / "sa.key", _pem(key))
    public = key.public_key()
    (folder / "sa.pub").write_bytes(
        public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def _new_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    # PKCS#1, the only form that the operators' certificate rotator reads.
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _issue(
    issuer: KeyPair | None,
    subject: Mapping[x509.ObjectIdentifier, str],
    extensions: Mapping[x509.ExtensionType, bool],
    dns_names: Sequence[str],
    addresses: Sequence[str] = (),
) -> KeyPair:
    """Return a new key pair signed by `issuer`, or by itself. `extensions` tells which of them are critical."""
    key, now = _new_key(), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(kind, text) for kind, text in subject.items()])
    signer = issuer.key if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer.certificate.subject if issuer else name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALIDITY)
        # Python's strict verification, the default since 3.13, requires both key identifiers.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical)
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if alternatives:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
    return KeyPair(builder.sign(signer, hashes.SHA256()), key)


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)

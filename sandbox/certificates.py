"""The sandbox's own certificate authority and every key pair that it signs.

All keys are created once per sandbox and kept, so tokens and kubeconfigs survive a restart. Only the sandbox's owner
may read them, because every server listens on loopback, where other users of the machine can also reach it.
"""

import base64
import datetime
import ipaddress
import os
import secrets
from collections.abc import Sequence
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

    @property
    def key_pem(self) -> bytes:
        return _pem(self.key)


def authority(common_name: str, dns_names: Sequence[str] = ()) -> KeyPair:
    """Return a new certificate authority."""
    key, name = _new_key(), _name(common_name)
    builder = _builder(name, name, key, key)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = _with_names(builder.add_extension(_SIGNS_CERTIFICATES, critical=True), dns_names, ())
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def sign(
    issuer: KeyPair,
    common_name: str,
    *,
    organization: str | None = None,
    dns_names: Sequence[str] = (),
    addresses: Sequence[str] = (),
) -> KeyPair:
    """Return a key pair for a server (`dns_names`, `addresses`) or a client (`common_name`, `organization`)."""
    key = _new_key()
    builder = _builder(_name(common_name, organization), issuer.certificate.subject, key, issuer.key)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _with_names(builder, dns_names, addresses).add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return KeyPair(builder.sign(issuer.key, hashes.SHA256()), key)


def write(pair: KeyPair, folder: Path, name: str) -> None:
    """Write `NAME.crt`, and `NAME.key` so that only its owner can read it."""
    (folder / f"{name}.crt").write_bytes(pair.certificate_pem)
    _write_private(folder / f"{name}.key", pair.key_pem)


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
            "client-key-data": base64.b64encode(pair.key_pem).decode(),
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


def _name(common_name: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization is not None:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: rsa.RSAPrivateKey, issuer_key: rsa.RSAPrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    # Python's strict verification, the default since 3.13, requires both key identifiers.
    subject_key = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _VALIDITY)
        .add_extension(subject_key, critical=False)
        .add_extension(authority_key, critical=False)
    )


def _with_names(
    builder: x509.CertificateBuilder, dns_names: Sequence[str], addresses: Sequence[str]
) -> x509.CertificateBuilder:
    alternatives: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
    alternatives += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    if not alternatives:
        return builder
    return builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)


def _write_private(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)

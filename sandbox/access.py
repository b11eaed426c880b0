"""Who a process of the sandbox is to its API server and its etcd."""

import urllib3

from infra.kubernetes import CONNECTIONS, ApiServer
from sandbox.site import Site


def administrator(site: Site) -> ApiServer:
    """The site's API server as its administrator; nothing is sent yet."""
    return ApiServer(site.api_server_url, _pool(site, "admin"))


def etcd(site: Site) -> urllib3.PoolManager:
    """Connections to the site's etcd, which answers nobody else."""
    return _pool(site, "etcd")


def _pool(site: Site, name: str) -> urllib3.PoolManager:
    return urllib3.PoolManager(
        maxsize=CONNECTIONS,
        ca_certs=str(site.pki / "ca.crt"),
        cert_file=str(site.pki / f"{name}.crt"),
        key_file=str(site.pki / f"{name}.key"),
    )

"""Who a process of the sandbox is to its API server."""

import urllib3

from infra.api_server import CONNECTIONS, ApiServer
from sandbox.site import Site


def administrator(site: Site) -> ApiServer:
    """The site's API server as its administrator; nothing is sent yet."""
    pool = urllib3.PoolManager(
        maxsize=CONNECTIONS,
        ca_certs=str(site.pki / "ca.crt"),
        cert_file=str(site.pki / "admin.crt"),
        key_file=str(site.pki / "admin.key"),
    )
    return ApiServer(site.api_server_url, pool)

"""An OCI registry on loopback that serves Helm charts, and can be made to lie about them."""

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import override

_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.cncf.helm.config.v1+json"
_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"


class Registry:
    """Charts of one registry."""

    def __init__(self) -> None:
        self.port = 0
        self.content: dict[str, tuple[str, bytes]] = {}
        """Media type and bytes, by `repository/manifests/TAG`, `.../manifests/DIGEST` and `.../blobs/DIGEST`."""

    def publish(self, name: str, version: str, image: str) -> str:
        """Add a chart whose only object names `image`, move the version's tag to it, and return its digest."""
        repository = f"{name}/charts/{name}"
        metadata = {"apiVersion": "v2", "name": name, "version": version}
        layer = self._blob(repository, _archive(name, metadata, image), _LAYER)
        config = self._blob(repository, json.dumps(metadata).encode(), _CONFIG)
        manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": config, "layers": [layer]}
        body = json.dumps(manifest).encode()
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        for reference in (version, digest):
            self.content[f"{repository}/manifests/{reference}"] = (_MANIFEST, body)
        return digest

    def _blob(self, repository: str, body: bytes, media_type: str) -> dict[str, object]:
        digest = f"sha256:{hashlib.sha256(body).hexdigest()}"
        self.content[f"{repository}/blobs/{digest}"] = ("application/octet-stream", body)
        return {"mediaType": media_type, "digest": digest, "size": len(body)}


@contextmanager
def serving() -> Generator[Registry]:
    """Serve a registry on a free port."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            media_type, body = registry.content.get(self.path.removeprefix("/v2/"), ("", b""))
            self.send_response(200 if body or self.path == "/v2/" else 404)
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body)))
            if media_type == _MANIFEST:
                self.send_header("Docker-Content-Digest", f"sha256:{hashlib.sha256(body).hexdigest()}")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        @override
        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _archive(name: str, metadata: dict[str, str], image: str) -> bytes:
    template = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: image}}\ndata: {{image: {image}}}\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path, text in (("Chart.yaml", json.dumps(metadata)), ("templates/image.yaml", template)):
            entry = tarfile.TarInfo(f"{name}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()

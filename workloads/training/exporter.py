"""The HTTP server where a host answers who collects metrics.

Owns address, port and path. Whatever goes wrong here costs no training: it is told, and the host trains on.
"""

import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from etils import epath

from workloads.spec import METRICS_ADDRESS_VARIABLE, METRICS_PORT
from workloads.training.live_metrics import LiveMetrics
from workloads.training.past_ends import past_ends
from workloads.training.start import Start

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_LONGEST_REQUEST_SECONDS = 10


def serve(metrics: LiveMetrics, environment: Mapping[str, str], port: int = METRICS_PORT) -> ThreadingHTTPServer | None:
    """Answer with `metrics` for as long as the process lives; None where it is not told at which address, or cannot."""
    address = environment.get(METRICS_ADDRESS_VARIABLE)
    if not address:
        return None
    try:
        server = ThreadingHTTPServer((address, port), _handler(metrics.text))
    except OSError as error:
        print(f"no metrics are served at {address}:{port}: {error}; training goes on", flush=True)
        return None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def look_back(metrics: LiveMetrics, storage: epath.Path, start: Start) -> None:
    """Let the leader tell how earlier starts ended, as soon as storage has said so."""

    def read() -> None:
        try:
            metrics.ended_before(past_ends(storage, start))
        except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
            print(f"metrics lack how earlier starts ended: {type(error).__name__}: {error}", flush=True)

    if metrics.leads:
        threading.Thread(target=read, name="past-ends", daemon=True).start()


def _handler(text: Callable[[], str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _LONGEST_REQUEST_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the name that the server looks for
            if self.path.partition("?")[0] != PATH:
                self.send_error(404, f"metrics are at {PATH}")
                return
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the log is the training's."""

    return Handler

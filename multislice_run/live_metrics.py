"""Metrics of a host while it trains, the HTTP server that collectors read them from, and signs for the supervisor.

Time is counted by the causes of the report, from the same events (`causes`), except for what is only
known later: work that a crash lost, and downtime. An error of the server is logged, and training continues.
"""

import math
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from etils import epath
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer

from multislice_run import exposition
from multislice_run.attempt_facts import AttemptFacts, PastEnd, past_ends
from multislice_run.exposition import Exposition
from multislice_run.pod import METRICS_ADDRESS_VARIABLE, METRICS_PORT
from multislice_run.records.events import ENDS_A_PIECE, Cause, EventName
from multislice_run.records.lines import StepLine
from multislice_run.supervised import SAVED, STEPPED, tell


class LiveMetrics(Exposition):
    """The metrics of one attempt on one host."""

    def __init__(self, start: AttemptFacts, *, leads: bool, clock: Callable[[], float] = time.time):
        super().__init__(leads)
        self._clock = clock
        self._cut = start.began
        self.set(exposition.STARTED, start.began)
        self.set(exposition.RESTARTS, start.restart_attempt)
        self.set(exposition.ASKED_SLICES, start.asked_slices)
        if start.usd_per_hour is not None:
            self.set(exposition.PRICE, start.usd_per_hour)
        # Counters exist from the beginning, so that rates include the first increase.
        for counter in (exposition.STEPS, exposition.SKIPPED_STEPS, exposition.ROLLBACKS):
            self.set(counter, 0)
        for cause in _COUNTED:
            self.set(exposition.SECONDS, 0, cause)

    def text(self) -> str:
        """Return all present values, in the text format of Prometheus."""
        return generate_latest(self).decode()

    def set_schedule(self, steps: int, save_interval_seconds: float | None, slices: int) -> None:
        self.set(exposition.PLANNED_STEPS, steps)
        if save_interval_seconds is not None:
            self.set(exposition.SAVE_INTERVAL, save_interval_seconds)
        self.set(exposition.SLICES, slices)

    def set_past_ends(self, ends: Mapping[str, PastEnd]) -> None:
        for code, end in ends.items():
            self.set(exposition.ENDS, end.count, code)
            self.set(exposition.LAST_END, end.last, code)

    def record_event(self, event: EventName, values: Mapping[str, Any]) -> None:
        if cause := ENDS_A_PIECE.get(event):
            self.add(exposition.SECONDS, self._cut_now(), cause)
        if event in (EventName.RUN_STARTED, EventName.RESTORE):
            # No work after this point is lost yet.
            self.set(exposition.STEP, values["step"])
            self.set(exposition.SAFE_SINCE, self._clock())
        elif event == EventName.CHECKPOINT_SAVED:
            self.set(exposition.SAVED_STEP, values["step"])
            self.set(exposition.SAFE_SINCE, self._clock())
            tell(SAVED)
        elif event == EventName.LOCAL_CHECKPOINT_WRITTEN:
            tell(SAVED)
        elif event == EventName.EVALUATION:
            self.set(exposition.HELD_OUT_LOSS, values["loss"])
        elif event == EventName.ROLLED_BACK:
            self.set(exposition.ROLLBACKS, values["number"])

    def record_step(self, line: StepLine) -> None:
        """Count the step of a line of `steps/`."""
        tell(STEPPED)
        self.add(exposition.STEPS, 1)
        self.add(exposition.STEP_SECONDS, line.step_seconds)
        self.add(exposition.HOST_SECONDS, line.host_seconds)
        self.set(exposition.LAST_STEP, self._clock())
        self.set(exposition.STEP, line.step)
        for family, value in ((exposition.LOSS, line.loss), (exposition.GRADIENT_NORM, line.gradient_norm)):
            if value is not None:
                self.set(family, value if math.isfinite(value) else math.nan)
        for family, value in ((exposition.TOKENS_PER_SECOND, line.tokens_per_second), (exposition.MFU, line.mfu)):
            if value is not None:
                self.set(family, value)
        self.set(exposition.SKIPPED_STEPS, line.skipped_steps)
        for family, values in (
            (exposition.MEMORY, line.device_bytes_in_use),
            (exposition.PEAK_MEMORY, line.device_peak_bytes_in_use),
        ):
            if used := [each for each in values or () if each is not None]:
                self.set(family, max(used))
        seconds = self._cut_now()
        saved = min(seconds, line.local_save_seconds or 0.0)
        waited = min(seconds - saved, line.host_seconds)
        self.add(exposition.SECONDS, saved, Cause.SAVE)
        self.add(exposition.SECONDS, waited, Cause.INPUT)
        self.add(exposition.SECONDS, seconds - saved - waited, Cause.LOST if line.skipped else Cause.PRODUCTIVE)

    def _cut_now(self) -> float:
        """Return the seconds since the last call. Never negative, even if the machine's clock is set back."""
        now = self._clock()
        seconds, self._cut = now - self._cut, now
        return max(0.0, seconds)


_COUNTED = (*dict.fromkeys(ENDS_A_PIECE.values()), Cause.INPUT, Cause.PRODUCTIVE, Cause.LOST)
"""Causes that an attempt can know while it runs."""


_REQUESTS = 16
"""Number of connections at a time. More are closed at once, because each takes a thread of the trainer's process."""
_REQUEST_SECONDS = 5.0
"""Time that a connection may be silent."""


class _Server(ThreadingWSGIServer):
    """The server, which asks for no key, so every pod that reaches it can read the metrics. Its connections are few
    and short, and an error ends only one of them."""

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]):
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._free = threading.Semaphore(_REQUESTS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        request.settimeout(_REQUEST_SECONDS)
        try:
            super().process_request(request, client_address)
        except RuntimeError:
            # No thread can be started.
            self._free.release()
            raise

    def finish_request(self, request: Any, client_address: Any) -> None:
        try:
            super().finish_request(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Write nothing, because anybody could fill the log."""


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
        """Write nothing."""


def serve(metrics: LiveMetrics, environment: Mapping[str, str], port: int = METRICS_PORT) -> WSGIServer | None:
    """Serve `metrics` for as long as the process lives. `None`: the environment names no address, or it is taken."""
    address = environment.get(METRICS_ADDRESS_VARIABLE)
    if not address:
        return None
    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        server = make_server(address, port, make_wsgi_app(registry), _Server, _Handler)
    except OSError as error:
        print(f"no metrics are served at {address}:{port}: {error}; training continues", flush=True)
        return None
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def look_back(metrics: LiveMetrics, storage: epath.Path, start: AttemptFacts) -> None:
    """Let the leader publish how earlier attempts ended, once it has read it from storage."""

    def read() -> None:
        try:
            metrics.set_past_ends(past_ends(storage, start))
        except Exception as error:  # noqa: BLE001 - each object store has exceptions of its own
            print(f"metrics lack the ends of earlier attempts: {type(error).__name__}: {error}", flush=True)

    if metrics.leads:
        threading.Thread(target=read, name="past-ends", daemon=True).start()

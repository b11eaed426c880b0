"""Metrics of a host while it trains: families, values, the HTTP server that collectors read, signs for the supervisor.

Time is counted by the causes of the report, from the same events (`causes`), except for what is only
known later: work that a crash lost, and downtime. An error of the server is logged, and training continues.
"""

import math
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from etils import epath
from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from multislice_run.attempt_facts import AttemptFacts, PastEnd, past_ends
from multislice_run.pod import METRICS_ADDRESS_VARIABLE, METRICS_PORT
from multislice_run.records.events import ENDS_A_PIECE, Cause, EventName
from multislice_run.records.lines import StepLine
from multislice_run.supervised import SAVED, STEPPED, tell

_METRICS = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}


@dataclass(frozen=True)
class Family:
    """Metrics with one name."""

    name: str
    kind: Literal["gauge", "counter"]
    """Type of the metric. A counter starts at 0 with the process and only grows."""
    meaning: str
    label: str | None = None
    """Label of its values. `None` if there is only one value."""
    leader_only: bool = True
    """Whether only the leader has it, because it is the same for the whole job."""


STARTED = Family("trainer_start_time_seconds", "gauge", "Unix time at which this host's process began.", None, False)
RESTARTS = Family("trainer_restarts", "gauge", "Restarts of the job before this attempt.", None, False)
STEPS = Family("trainer_steps_total", "counter", "Steps done in this attempt.", None, False)
STEP_SECONDS = Family("trainer_step_seconds_total", "counter", "Time that these steps took.", None, False)
HOST_SECONDS = Family(
    "trainer_host_seconds_total", "counter", "Part of it in which this host kept the devices waiting.", None, False
)
LAST_STEP = Family("trainer_last_step_time_seconds", "gauge", "Unix time at which the last step ended.", None, False)
MEMORY = Family("trainer_hbm_used_bytes", "gauge", "Memory in use on this host's fullest device.", None, False)
PEAK_MEMORY = Family("trainer_hbm_peak_bytes", "gauge", "Peak memory in use on one of them.", None, False)

STEP = Family("trainer_step", "gauge", "Steps of the run that are done.")
PLANNED_STEPS = Family("trainer_planned_steps", "gauge", "The run's last step.")
LOSS = Family("trainer_loss", "gauge", "Loss of the last step; NaN if it was not finite.")
HELD_OUT_LOSS = Family("trainer_held_out_loss", "gauge", "Loss of the last evaluation.")
GRADIENT_NORM = Family("trainer_gradient_norm", "gauge", "Norm of the last gradient before clipping.")
TOKENS_PER_SECOND = Family("trainer_tokens_per_second", "gauge", "Tokens per second of the last step over all slices.")
MFU = Family("trainer_mfu_ratio", "gauge", "Model FLOP/s of the last step as a share of the chips' rated peak.")
SKIPPED_STEPS = Family(
    "trainer_skipped_steps_total",
    "counter",
    "Steps that were skipped: their loss or gradient was not finite or too large.",
)
ROLLBACKS = Family("trainer_rollbacks_total", "counter", "Rollbacks to an earlier checkpoint in this attempt.")
SAFE_SINCE = Family(
    "trainer_safe_time_seconds", "gauge", "Unix time of the last complete save, or of the first step before any save."
)
SAVED_STEP = Family("trainer_saved_step", "gauge", "Step of the last complete save of this attempt.")
SAVE_INTERVAL = Family("trainer_save_interval_seconds", "gauge", "Longest time between two saves, as set for the job.")
SECONDS = Family("trainer_seconds_total", "counter", "Time of this attempt; lost work is known only later.", "cause")
SLICES = Family("trainer_slices", "gauge", "Slices that train in this attempt.")
ASKED_SLICES = Family("trainer_asked_slices", "gauge", "Slices that the job asks for.")
PRICE = Family("trainer_usd_per_hour", "gauge", "Price of all slices of the job.")
ENDS = Family("trainer_ends", "gauge", "Earlier attempts of this submission, by exit code.", "code")
LAST_END = Family("trainer_last_end_time_seconds", "gauge", "Unix time at which the last of these ended.", "code")

FAMILIES = tuple(value for value in tuple(globals().values()) if isinstance(value, Family))


class Exposition(Collector):
    """The present values of the families, for `prometheus_client`.

    The thread that trains sets them; threads of the HTTP server read them. A family without a value is left out, and so
    are the leader's on other hosts.
    """

    def __init__(self, leads: bool = True):
        self.leads = leads
        """Whether this host is the leader."""
        self._numbers: dict[Family, dict[str, float]] = {}
        self._lock = threading.Lock()

    def set(self, family: Family, number: float, label: str = "") -> None:
        self._store(family, label, lambda _: number)

    def add(self, family: Family, number: float, label: str = "") -> None:
        self._store(family, label, lambda before: before + number)

    def _store(self, family: Family, label: str, after: Callable[[float], float]) -> None:
        with self._lock:
            numbers = self._numbers.setdefault(family, {})
            numbers[label] = after(numbers.get(label, 0.0))

    def collect(self) -> Iterator[Metric]:
        shown = [family for family in FAMILIES if self.leads or not family.leader_only]
        with self._lock:
            present = {family: dict(self._numbers[family]) for family in shown if family in self._numbers}
        for family, numbers in present.items():
            metric = _METRICS[family.kind](family.name, family.meaning, labels=[family.label] if family.label else [])
            for label, number in numbers.items():
                metric.add_metric([label] if family.label else [], number)
            yield metric


class LiveMetrics(Exposition):
    """The metrics of one attempt on one host."""

    def __init__(self, start: AttemptFacts, *, leads: bool, clock: Callable[[], float] = time.time):
        super().__init__(leads)
        self._clock = clock
        self._cut = start.began
        self.set(STARTED, start.began)
        self.set(RESTARTS, start.restart_attempt)
        self.set(ASKED_SLICES, start.asked_slices)
        if start.usd_per_hour is not None:
            self.set(PRICE, start.usd_per_hour)
        # Counters exist from the beginning, so that rates include the first increase.
        for counter in (STEPS, SKIPPED_STEPS, ROLLBACKS):
            self.set(counter, 0)
        for cause in _COUNTED:
            self.set(SECONDS, 0, cause)

    def text(self) -> str:
        """Return all present values, in the text format of Prometheus."""
        return generate_latest(self).decode()

    def set_schedule(self, steps: int, save_interval_seconds: float | None, slices: int) -> None:
        self.set(PLANNED_STEPS, steps)
        if save_interval_seconds is not None:
            self.set(SAVE_INTERVAL, save_interval_seconds)
        self.set(SLICES, slices)

    def set_past_ends(self, ends: Mapping[str, PastEnd]) -> None:
        for code, end in ends.items():
            self.set(ENDS, end.count, code)
            self.set(LAST_END, end.last, code)

    def record_event(self, event: EventName, values: Mapping[str, Any]) -> None:
        if cause := ENDS_A_PIECE.get(event):
            self.add(SECONDS, self._cut_now(), cause)
        if event in (EventName.RUN_STARTED, EventName.RESTORE):
            # No work after this point is lost yet.
            self.set(STEP, values["step"])
            self.set(SAFE_SINCE, self._clock())
        elif event == EventName.CHECKPOINT_SAVED:
            self.set(SAVED_STEP, values["step"])
            self.set(SAFE_SINCE, self._clock())
            tell(SAVED)
        elif event == EventName.LOCAL_CHECKPOINT_WRITTEN:
            tell(SAVED)
        elif event == EventName.EVALUATION:
            self.set(HELD_OUT_LOSS, values["loss"])
        elif event == EventName.ROLLED_BACK:
            self.set(ROLLBACKS, values["number"])

    def record_step(self, line: StepLine) -> None:
        """Count the step of a line of `steps/`."""
        tell(STEPPED)
        self.add(STEPS, 1)
        self.add(STEP_SECONDS, line.step_seconds)
        self.add(HOST_SECONDS, line.host_seconds)
        self.set(LAST_STEP, self._clock())
        self.set(STEP, line.step)
        rates = (TOKENS_PER_SECOND, line.tokens_per_second), (MFU, line.mfu)
        for family, value in ((LOSS, line.loss), (GRADIENT_NORM, line.gradient_norm), *rates):
            if value is not None:
                self.set(family, value if math.isfinite(value) else math.nan)
        self.set(SKIPPED_STEPS, line.skipped_steps)
        for family, values in ((MEMORY, line.device_bytes_in_use), (PEAK_MEMORY, line.device_peak_bytes_in_use)):
            if used := [each for each in values or () if each is not None]:
                self.set(family, max(used))
        seconds = self._cut_now()
        saved = min(seconds, line.local_save_seconds or 0.0)
        waited = min(seconds - saved, line.host_seconds)
        self.add(SECONDS, saved, Cause.SAVE)
        self.add(SECONDS, waited, Cause.INPUT)
        self.add(SECONDS, seconds - saved - waited, Cause.LOST if line.skipped else Cause.PRODUCTIVE)

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

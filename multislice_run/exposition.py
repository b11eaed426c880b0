"""Metric families of a host, with their meanings and present values. `live_metrics` sets and serves them."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

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
        """Set the value of a family, for one value of its label."""
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

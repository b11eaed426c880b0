"""What a host tells of the training that goes on, for whoever watches many jobs.

Owns what an event or step means for the numbers of `exposition`. Time is counted for the causes of the report, by the
same events (`workloads.report.goodput`), but for what is known only afterwards: that work was lost to a crash, and the
time that a run was down.
"""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from workloads.report.goodput import ENDS_A_PIECE, Cause
from workloads.spec import TrainingSpec
from workloads.training import exposition
from workloads.training.exposition import Exposition
from workloads.training.past_ends import PastEnd
from workloads.training.start import Start


class LiveMetrics:
    """The numbers of one start on one host."""

    def __init__(self, start: Start, *, leads: bool, clock: Callable[[], float] = time.time):
        self.leads = leads
        self._clock = clock
        self._cut = start.began
        self._numbers = Exposition()
        self._set(exposition.STARTED, start.began)
        self._set(exposition.RESTARTS, start.restart_attempt)
        self._set(exposition.ASKED_SLICES, start.asked_slices)
        if start.usd_per_hour is not None:
            self._set(exposition.PRICE, start.usd_per_hour)
        # From the first on, so that a rate knows what the first one of them adds.
        for counter in (exposition.STEPS, exposition.SKIPPED_STEPS, exposition.ROLLBACKS):
            self._set(counter, 0)
        for cause in _COUNTED:
            self._set(exposition.SECONDS, 0, cause)

    def text(self) -> str:
        """All numbers of now, in the text format of Prometheus."""
        return self._numbers.text()

    def planned(self, schedule: TrainingSpec, slices: int) -> None:
        """What this start is to do, and on how many slices."""
        self._set(exposition.PLANNED_STEPS, schedule.steps)
        self._set(exposition.SAVE_INTERVAL, schedule.save_every_minutes * 60)
        self._set(exposition.SLICES, slices)

    def ended_before(self, ends: Mapping[str, PastEnd]) -> None:
        """How earlier starts ended, by exit code."""
        for code, end in ends.items():
            self._set(exposition.ENDS, end.count, code)
            self._set(exposition.LAST_END, end.last, code)

    def happened(self, event: str, values: Mapping[str, Any]) -> None:
        """An event of the ledger."""
        if cause := ENDS_A_PIECE.get(event):
            self._spent(cause, self._cut_now())
        if event in ("RunStarted", "restore"):
            # Nothing is lost yet of what is done from here.
            self._set(exposition.STEP, values["step"])
            self._set(exposition.SAFE_SINCE, self._clock())
        elif event == "CheckpointSaved":
            self._set(exposition.SAVED_STEP, values["step"])
            self._set(exposition.SAFE_SINCE, self._clock())
        elif event == "Evaluation":
            self._set(exposition.HELD_OUT_LOSS, values["loss"])
        elif event == "RolledBack":
            self._set(exposition.ROLLBACKS, values["number"])

    def stepped(self, line: Mapping[str, Any]) -> None:
        """A step, as its line says it."""
        self._numbers.add(exposition.STEPS, 1)
        self._numbers.add(exposition.STEP_SECONDS, line["step_seconds"])
        self._numbers.add(exposition.HOST_SECONDS, line["host_seconds"])
        self._set(exposition.LAST_STEP, self._clock())
        self._set(exposition.STEP, line["step"])
        for family, name in ((exposition.LOSS, "loss"), (exposition.GRADIENT_NORM, "gradient_norm")):
            # In JSON, which knows no NaN, they are null then.
            self._set(family, math.nan if line[name] is None else line[name])
        self._set(exposition.TOKENS_PER_SECOND, line["tokens_per_second"])
        if line["mfu"] is not None:
            self._set(exposition.MFU, line["mfu"])
        self._set(exposition.SKIPPED_STEPS, line["skipped_steps"])
        for family, name in _OF_DEVICES:
            used = [each for each in line[name] if each is not None]
            if used:
                self._set(family, max(used))
        seconds = self._cut_now()
        waited = min(seconds, line["host_seconds"])
        self._spent(Cause.INPUT, waited)
        self._spent(Cause.LOST if line["skipped"] else Cause.PRODUCTIVE, seconds - waited)

    def _set(self, family: exposition.Family, number: float, label: str = "") -> None:
        if self.leads or not family.leader_alone:
            self._numbers.set(family, number, label)

    def _spent(self, cause: Cause, seconds: float) -> None:
        if self.leads:
            self._numbers.add(exposition.SECONDS, seconds, cause)

    def _cut_now(self) -> float:
        """Seconds since time was last counted. Never negative: somebody may set the machine's clock."""
        now = self._clock()
        seconds, self._cut = now - self._cut, now
        return max(0.0, seconds)


_OF_DEVICES = (
    (exposition.MEMORY, "device_bytes_in_use"),
    (exposition.PEAK_MEMORY, "device_peak_bytes_in_use"),
)
_COUNTED = (*dict.fromkeys(ENDS_A_PIECE.values()), Cause.INPUT, Cause.PRODUCTIVE, Cause.LOST)
"""Causes that a start can know while it runs."""

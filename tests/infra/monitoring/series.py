"""Made series for each alert: some on which it fires, and some of a healthy stack."""

from collections.abc import Mapping
from dataclasses import dataclass

JOB = 'namespace="research", jobset="tiny"'
HOST_0 = f'{JOB}, slice="0", host="0", node="n0", pod="p0"'
HOST_1 = f'{JOB}, slice="0", host="1", node="n1", pod="p1"'
HOST_2 = f'{JOB}, slice="1", host="0", node="n2", pod="p2"'
QUEUE = 'cluster_queue="research"'
TRIED = f'kueue_pending_workloads{{{QUEUE}, status="inadmissible"}}'
JOBSET = 'namespace="jobset-system", exported_namespace="research", jobset_name="tiny"'

type Series = Mapping[str, str]
"""Values by series, a minute apart, as promtool writes them: `1+2x3` is 1, 3, 5, 7."""


@dataclass(frozen=True)
class Case:
    """An alert on one state of the world."""

    series: Series
    at: str
    """When it is asked, in the terms of Prometheus."""
    labels: Mapping[str, str]
    """Of the alert that fires."""


ONE_JOB = {"namespace": "research", "jobset": "tiny"}

HEALTHY: Series = {
    f"trainer_start_time_seconds{{{HOST_0}}}": "0x900",
    f"trainer_start_time_seconds{{{HOST_1}}}": "0x900",
    f"trainer_last_step_time_seconds{{{HOST_0}}}": "0+60x900",
    f"trainer_last_step_time_seconds{{{HOST_1}}}": "0+60x900",
    f"trainer_restarts{{{HOST_0}}}": "2x900",
    f"trainer_restarts{{{HOST_1}}}": "2x900",
    f"trainer_slices{{{HOST_0}}}": "2x900",
    f"trainer_asked_slices{{{HOST_0}}}": "2x900",
    f"trainer_skipped_steps_total{{{HOST_0}}}": "3x900",
    # A save every 10 minutes.
    f"trainer_safe_time_seconds{{{HOST_0}}}": " ".join(f"{600 * number}x9" for number in range(90)),
    f"trainer_save_interval_seconds{{{HOST_0}}}": "600x900",
    f"trainer_step_seconds_total{{{HOST_0}}}": "0+60x900",
    f"trainer_step_seconds_total{{{HOST_1}}}": "0+60x900",
    f"trainer_host_seconds_total{{{HOST_0}}}": "0+3x900",
    f"trainer_host_seconds_total{{{HOST_1}}}": "0+1x900",
    f'trainer_seconds_total{{{HOST_0}, cause="productive steps"}}': "0+54x900",
    f'trainer_seconds_total{{{HOST_0}, cause="saves"}}': "0+6x900",
    f'trainer_ends{{{HOST_0}, code="PREEMPTED"}}': "2x900",
    f'trainer_last_end_time_seconds{{{HOST_0}, code="PREEMPTED"}}': "0x900",
    # Each job waits 8 minutes.
    TRIED: "1x7 0 " * 100,
    f'kueue_cluster_queue_status{{{QUEUE}, status="active"}}': "1x900",
    f'kueue_cluster_queue_status{{{QUEUE}, status="pending"}}': "0x900",
    f'kueue_evicted_workloads_total{{{QUEUE}, reason="Preempted"}}': "7x900",
    f'kueue_evicted_workloads_total{{{QUEUE}, reason="Deactivated"}}': "0+1x900",
    f"jobset_failed_total{{{JOBSET}}}": "1x900",
    'up{job="kueue"}': "1x900",
    'up{job="jobset"}': "1x900",
}


def _spoilt(changes: Series, at: str, labels: Mapping[str, str] = ONE_JOB) -> Case:
    """A healthy stack but for these series."""
    return Case({**HEALTHY, **changes}, at, labels)


_LAST_STEP, _ON_HOST = "trainer_last_step_time_seconds", {"slice": "1", "host": "0", "node": "n2", "pod": "p2"}
_PRODUCTIVE = f'trainer_seconds_total{{{HOST_0}, cause="productive steps"}}'
_ACTIVE = f'kueue_cluster_queue_status{{{QUEUE}, status="active"}}'
_EVICTED = f'kueue_evicted_workloads_total{{{QUEUE}, reason="PodsReadyTimeout"}}'
_OF_QUEUE = {"cluster_queue": "research"}

FIRING: Mapping[str, Case] = {
    "TrainerNoStep": _spoilt({f"{_LAST_STEP}{{{host}}}": "0+60x60 3600x300" for host in (HOST_0, HOST_1)}, "100m"),
    "TrainerLossNotFinite": _spoilt({f"trainer_skipped_steps_total{{{HOST_0}}}": "3x89 4x100"}, "95m"),
    "TrainerSaveTooOld": _spoilt({f"trainer_safe_time_seconds{{{HOST_0}}}": "0x900"}, "30m"),
    "TrainerLacksSlices": _spoilt({f"trainer_slices{{{HOST_0}}}": "2x60 1x60"}, "90m"),
    "TrainerRestarts": _spoilt(
        {f"trainer_restarts{{{host}}}": "2x60 3x15 4x15 5x15" for host in (HOST_0, HOST_1)}, "100m"
    ),
    "TrainerSlowHost": _spoilt(
        {f"trainer_step_seconds_total{{{HOST_2}}}": "0+60x900", f"trainer_host_seconds_total{{{HOST_2}}}": "0+15x900"},
        "60m",
        ONE_JOB | _ON_HOST,
    ),
    "TrainerGoodputLow": _spoilt({_PRODUCTIVE: "0+20x900"}, "120m"),
    "TrainerHostSetAside": _spoilt({f'trainer_last_end_time_seconds{{{HOST_0}, code="BAD_HOST"}}': "3000x900"}, "60m"),
    "KueueJobWaits": _spoilt({TRIED: "0x59 1x60"}, "70m", _OF_QUEUE | {"status": "inadmissible"}),
    "KueueQueueInactive": _spoilt({_ACTIVE: "1x60 0x100"}, "90m", _OF_QUEUE),
    "KueueEvictions": _spoilt({_EVICTED: "1x59 2x9 4x9 6x60"}, "90m", _OF_QUEUE | {"reason": "PodsReadyTimeout"}),
    # The first failure of a JobSet begins its series.
    "JobSetFailed": _spoilt(
        {f"jobset_failed_total{{{JOBSET}}}": "_x59 1x60"},
        "65m",
        {"exported_namespace": "research", "jobset_name": "tiny"},
    ),
    "ControllersSilent": _spoilt({'up{job="kueue"}': "1x60 0x60"}, "80m", {}),
}

QUIET: Mapping[str, Case] = {
    "TrainerNoStep": Case(
        # It was put back into the queue for an hour and has begun again ten minutes ago.
        {
            f"trainer_start_time_seconds{{{HOST_0}}}": "0x60 _x60 7200x60",
            f"{_LAST_STEP}{{{HOST_0}}}": "0+60x60 _x120",
        },
        "130m",
        {},
    ),
    "TrainerGoodputLow": Case(
        # It began half an hour ago.
        {
            f"trainer_start_time_seconds{{{HOST_0}}}": "_x60 3600x60",
            _PRODUCTIVE: "_x60 0+54x60",
        },
        "100m",
        {},
    ),
    "KueueJobWaits": Case(
        # The queue is on hold, which another alert reports.
        {TRIED: "1x60", _ACTIVE: "0x60"},
        "50m",
        {},
    ),
}
"""States that look bad and are not."""

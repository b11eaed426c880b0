"""When somebody is told, and what to do then.

Owns the alerts as they stand in `docs/monitoring.md`; how they become rules of the cluster is the business of
`infra.monitoring.rules`. Expressions name what the trainer (`workloads.training.exposition`), Kueue and JobSet tell.
"""

from dataclasses import dataclass
from typing import Literal

from infra.monitoring.collection import JOBSET_LABEL
from workloads.spec import ExitCode

Severity = Literal["page", "ticket"]
"""`page`: chips are paid for and do nothing. `ticket`: look at it in working hours."""


@dataclass(frozen=True)
class Alert:
    """A condition, and what people need to know when it holds."""

    name: str
    expression: str
    lasts: str
    """How long it must hold before somebody is told, as Prometheus writes durations."""
    severity: Severity
    summary: str
    """One sentence, with `{{ $labels.NAME }}` for what it is about and `VALUE` for how much."""
    action: str
    """What to do first."""


VALUE = '{{ printf "%.0f" $value }}'
"""What is counted over a window is no whole number."""

_BY_JOB = f"by (namespace, {JOBSET_LABEL})"
_ONE_JOB = f"{{{{ $labels.namespace }}}}/{{{{ $labels.{JOBSET_LABEL} }}}}"
_PRODUCTIVE = 'trainer_seconds_total{cause="productive steps"}'
_HOST_SHARE = "rate(trainer_host_seconds_total[15m]) / rate(trainer_step_seconds_total[15m])"
_BY_JOBSET = "by (exported_namespace, jobset_name)"
"""In what JobSet tells, `namespace` is the controller's own."""


def _present(ago: str = "") -> str:
    """Jobs whose hosts answered within the ten minutes before; restarts take less."""
    offset = f" offset {ago}" if ago else ""
    return f"count {_BY_JOB} (last_over_time(trainer_start_time_seconds[10m]{offset}))"


OF_TRAINER = (
    Alert(
        "TrainerNoStep",
        f"time() - (max {_BY_JOB} (max_over_time(trainer_last_step_time_seconds[3h]))"
        f" or min {_BY_JOB} (min_over_time(trainer_start_time_seconds[3h]))) > 1800"
        f" and {_present()} and {_present('30m')}",
        "5m",
        "page",
        f"{_ONE_JOB} has done no step for 30 minutes.",
        "Look at the leader's log: it says what it waits for. A job that starts again and again ends the same way each"
        " time; the report names the exit codes.",
    ),
    Alert(
        "TrainerLossNotFinite",
        f"sum {_BY_JOB} (increase(trainer_skipped_steps_total[15m])) > 0",
        "0m",
        "ticket",
        f"{_ONE_JOB} skipped steps whose loss or gradient is not finite or too large.",
        "A few cost nothing but themselves. If they follow each other, the job goes back or ends as diverged: set a"
        " lower job.optimizer.learning_rate with job.allow_changes: [optimizer.learning_rate], or look at the data of"
        " these steps.",
    ),
    Alert(
        "TrainerSaveTooOld",
        f"time() - max {_BY_JOB} (trainer_safe_time_seconds) > 2 * max {_BY_JOB} (trainer_save_interval_seconds)",
        "5m",
        "page",
        f"{_ONE_JOB} has no complete save for twice the time that is asked for; a crash would cost all since then.",
        "Look for the storage in the leader's log, and at quota and rights of the checkpoint bucket. A save that does"
        " not end holds up the next one.",
    ),
    Alert(
        "TrainerRestarts",
        f"max {_BY_JOB} (trainer_restarts) - min {_BY_JOB} (min_over_time(trainer_restarts[1h])) >= 3",
        "0m",
        "page",
        f"{_ONE_JOB} restarted {VALUE} times within an hour.",
        "`multislice explain JOB -s STACK` says why each start ended. A crash that comes back uses up"
        " max_restarts; preemptions do not.",
    ),
    Alert(
        "TrainerSlowHost",
        f"{_HOST_SHARE} - on (namespace, {JOBSET_LABEL}) group_left () quantile {_BY_JOB} (0.5, {_HOST_SHARE}) > 0.1",
        "15m",
        "ticket",
        f"Host {{{{ $labels.host }}}} of slice {{{{ $labels.slice }}}} keeps the others of {_ONE_JOB} waiting.",
        "Its own part of a step exceeds the median host's by a tenth of the step. Look at its CPU, disk and network on"
        " node {{ $labels.node }}; if it stays, drain the node.",
    ),
    Alert(
        "TrainerGoodputLow",
        f"sum {_BY_JOB} (increase({_PRODUCTIVE}[1h])) / 3600 < 0.5 and {_present()} and {_present('1h')}",
        "15m",
        "ticket",
        f"{_ONE_JOB} spent less than half of the last hour on productive steps.",
        "The dashboard and the report say what the rest went to: saves, evaluation, restarts, waiting for hosts.",
    ),
    Alert(
        "TrainerHostSetAside",
        f'time() - max {_BY_JOB} (trainer_last_end_time_seconds{{code="{ExitCode.BAD_HOST.name}"}}) < 21600',
        "0m",
        "ticket",
        f"A bad host of {_ONE_JOB} was set aside with its slice within the last 6 hours.",
        "The job goes on elsewhere if slices are free. `multislice doctor -s STACK` names the marked nodes: have"
        " them repaired or replaced, and take the taint off: docs/operations.md, A bad host.",
    ),
)

OF_QUEUES = (
    Alert(
        "KueueJobWaits",
        # Kueue has no metric of how long a job waits: this fires when some job waits at every moment of the 10 minutes.
        "sum by (cluster_queue, status) (kueue_pending_workloads) > 0 unless on (cluster_queue)"
        ' max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 0',
        "10m",
        "ticket",
        "Jobs have waited in queue {{ $labels.cluster_queue }} for 10 minutes ({{ $labels.status }})."
        f" {VALUE} wait now.",
        "`multislice explain JOB -s STACK` names the reason and what to do. Jobs that are inadmissible were tried: the"
        " quota is taken or too small, or no slice has all its hosts free. For the last, look for another zone. Jobs"
        " that are active were not tried yet: others are first, or Kueue does not get to them.",
    ),
    Alert(
        "KueueQueueInactive",
        'max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 0',
        "10m",
        "page",
        "Queue {{ $labels.cluster_queue }} admits no job.",
        "It is on hold or drained (teams.NAME.admission), or its flavor or admission check is missing: look at its"
        " conditions with kubectl describe clusterqueue.",
    ),
    Alert(
        "KueueEvictions",
        'sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{reason!="Deactivated"}[1h])) >= 3',
        "0m",
        "ticket",
        f"Queue {{{{ $labels.cluster_queue }}}} lost {VALUE} admitted jobs within an hour ({{{{ $labels.reason }}}}).",
        "Preempted: jobs of higher priority or owners of the quota take turns with it. PodsReadyTimeout: hosts do not"
        " come up, so look at the node pools and at capacity.",
    ),
    Alert(
        "JobSetFailed",
        # The first failure begins the series, which is no increase of it.
        f"sum {_BY_JOBSET} (increase(jobset_failed_total[15m])) > 0 or"
        f" (sum {_BY_JOBSET} (jobset_failed_total) unless sum {_BY_JOBSET} (jobset_failed_total offset 15m))",
        "0m",
        "page",
        "JobSet {{ $labels.exported_namespace }}/{{ $labels.jobset_name }} failed and does not restart.",
        "The exit code says why: a specification or memory that cannot work, a loss that stays not finite, or"
        " max_restarts used up. The report names the host that failed first.",
    ),
    Alert(
        "ControllersSilent",
        'absent(up{job="kueue"} == 1) or absent(up{job="jobset"} == 1)',
        "10m",
        "page",
        "Kueue or JobSet answers no collector.",
        "Without them nothing is admitted or restarted, and the other alerts on them say nothing. Look at their pods in"
        " kueue-system and jobset-system.",
    ),
)

ALERTS = (*OF_TRAINER, *OF_QUEUES)

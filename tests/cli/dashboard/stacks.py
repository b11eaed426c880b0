"""A stack as it is shown in tests of the page."""

from dataclasses import replace
from pathlib import Path

from cli.deployed import JobPlace
from cli.observed.files import read_files
from cli.observed.objects import Condition
from cli.observed.pod import Pod
from cli.observed.snapshot import Event, Job, Node, Queue, Share, Snapshot, Workload
from tests.workloads.report.runs import crashed_and_resumed

NOW = 1_767_614_400.0
_ADMITTED = Workload(
    name="jobset-tiny",
    uid="w",
    namespace="research",
    queue="research",
    owner="tiny",
    priority=500,
    chips=16,
    created=NOW - 600,
    active=True,
    admitted_by="research",
    flavors=("v6e-2x4",),
    requeue_at=None,
    evictions={},
    checks=(),
    conditions=(Condition("Admitted", True, "", "", NOW - 590),),
)
_HOSTS = tuple((slice_index, host) for slice_index in (0, 1) for host in (0, 1))
_PODS = tuple(
    Pod(
        f"tiny-slice-{a}-{b}-x",
        f"u{a}{b}",
        "research",
        f"slice-{a}-{b}",
        "Running",
        f"gke-slice-{a}-{b}",
        1,
        0.0,
        1.0,
        None,
        "",
    )
    for a, b in _HOSTS
)
_NODES = tuple(Node(f"gke-slice-{a}-{b}", f"slice-{a}", "2x4", 4, True, "", 0.0, False, "", ()) for a, b in _HOSTS)


_JOB = Job(
    JobPlace("tiny", "research", "research"),
    uid="j",
    created=NOW - 600,
    slices=2,
    hosts=4,
    workload=_ADMITTED,
    pods=_PODS,
    events=(Event(NOW - 60, "JobSet", "tiny", "Restarting", "restarted all jobs", True),),
)
_STACK = Snapshot(
    "dev",
    "-s dev",
    "dev",
    NOW,
    usd_per_hour=21.6,
    nodes=_NODES,
    queues=(
        Queue(
            "research", "research", (Share("v6e-2x4", 16, 16, 0),), 0, 1, (Condition("Active", True, "Ready", "", 0.0),)
        ),
    ),
    workloads=(_ADMITTED,),
)


def snapshot(folder: Path) -> Snapshot:
    """A job that crashed, resumed and is at its last step; its files are written to an empty folder."""
    crashed_and_resumed(folder, 3600.0, 7200.0)
    job = replace(_JOB, files=replace(read_files(str(folder)), last_step_at=NOW - 1))
    return replace(_STACK, jobs=(job,))

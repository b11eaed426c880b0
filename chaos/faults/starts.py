"""Faults that strike as a job begins."""

import socket

from chaos.fault import UNDISTURBED, Expected, Fault, comes_with_the_job
from chaos.field import NAMESPACE, Field
from chaos.sabotage import Sabotage, sabotaged, with_variables
from sandbox.tpu_environment import JAX_COORDINATOR_PORT

_LATE_SECONDS = 30.0
_CREATED_SECONDS = 60
_TOLD_SECONDS = 120
_SLICES_OF_ANOTHER_TIME = "3"


def _take_port(field: Field, job: str) -> None:
    """Listens where the leader is about to, until it has said so."""
    leader = f"{job}-slice-0-0-"

    def names() -> list[str]:
        return [name for pod in field.pods(job) if (name := pod["metadata"]["name"]).startswith(leader)]

    field.wait(f"the pod {leader}", lambda: bool(names()), _CREATED_SECONDS)
    with socket.create_server((field.site.pod_address(NAMESPACE, names()[0]), JAX_COORDINATOR_PORT)):
        field.wait(f"a failure record of {job}", lambda: bool(field.failures(job)), _TOLD_SECONDS)


def _see_late(field: Field, job: str) -> None:
    field.wait("a leader that waited for the late slice", lambda: _waited(field, job) > _LATE_SECONDS, 1)


def _waited(field: Field, job: str) -> float:
    """From the leader's begin until all had joined."""
    (start,) = field.history(job).starts
    joined = start.last("start")
    return joined.time - joined.facts["began"] if joined else 0.0


FAULTS = (
    Fault(
        "slice-late",
        "the hosts of one slice begin half a minute after the others",
        _see_late,
        UNDISTURBED,
        at_step=1,
        edit=sabotaged(
            Sabotage(
                "delay",
                "workloads.training.host:run_host",
                ("slice-1-0", "slice-1-1"),
                (1, 1),
                seconds=_LATE_SECONDS,
            )
        ),
    ),
    Fault(
        "port-taken",
        "something else listens at the leader's port when it begins",
        _take_port,
        Expected(
            starts=1, charged=1, culprit="port-taken-slice-0-0", cause=f"port {JAX_COORDINATOR_PORT}", lost_steps=0
        ),
    ),
    Fault(
        "slice-count-stale",
        "the environment tells of more slices than the job has",
        comes_with_the_job,
        Expected(
            terminal="Failed",
            starts=0,
            charged=0,
            culprit="slice-count-stale-slice-0-0",
            cause=f"expected 2 slices (MEGASCALE_NUM_SLICES), got {_SLICES_OF_ANOTHER_TIME}",
            lost_steps=0,
        ),
        edit=with_variables({"MEGASCALE_NUM_SLICES": _SLICES_OF_ANOTHER_TIME}),
    ),
)

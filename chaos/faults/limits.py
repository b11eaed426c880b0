"""Limits that a job runs into: its restarts are used up, its time is over."""

import signal
import time
from dataclasses import replace

from chaos.fault import SUSPENDED, Expected, Fault
from chaos.faults.pace import PACED
from chaos.faults.process import left
from chaos.field import BETWEEN_SAVES, SAVE_EVERY, STEPS, Field
from workloads.report.history import LAST

_DEADLINE_SECONDS = 75
_STAYS_SECONDS = 10


def _kill_for_good(field: Field, job: str) -> None:
    field.send(signal.SIGKILL, job, "slice-1-0")
    field.wait_for_end(job)
    _require_checkpoint(field, job, SAVE_EVERY)


def _outlive_deadline(field: Field, job: str) -> None:
    """Kueue lets the job go after its time, and never has it back."""
    field.wait(f"the end of the time of {job}", lambda: field.jobset(job)["spec"]["suspend"], 2 * _DEADLINE_SECONDS)
    field.wait(f"the pods of {job} to go", lambda: not field.pods(job), _DEADLINE_SECONDS)
    _require_checkpoint(field, job, max(line["step"] for line in field.steps(job)))
    time.sleep(_STAYS_SECONDS)
    field.wait(f"{job} to be left alone", lambda: not field.pods(job), 1)


def _require_checkpoint(field: Field, job: str, step: int) -> None:
    folder = field.run_folder(job) / "checkpoints"
    field.wait(f"a checkpoint of step {step} in {folder}", (folder / str(step)).exists, 1)


FAULTS = (
    Fault(
        "restarts-used-up",
        "a host is killed and the job has no restart left",
        _kill_for_good,
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=frozenset({LAST, "PEER_LOST"}),
            said="reaching max number of restarts",
        ),
        at_step=BETWEEN_SAVES,
        job={"max_restarts": 0},
        edit=PACED,
    ),
    Fault(
        "deadline-reached",
        "the job has held its chips for `max_hours`",
        _outlive_deadline,
        replace(
            left("deadline-reached"),
            terminal=SUSPENDED,
            starts=1,
            # Its learning rate falls over more steps.
            loss_tolerance=0.05,
            said="maximum execution time",
        ),
        at_step=BETWEEN_SAVES,
        job={"max_hours": _DEADLINE_SECONDS / 3600, "training": {"steps": 50 * STEPS}},
    ),
)

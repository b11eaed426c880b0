"""Faults inside the trainer: one host fails, is slow, or computes what is no number."""

from chaos.fault import TAKE_STEP, Expected, Fault, comes_with_the_job
from chaos.sabotage import Deed, Sabotage, sabotaged

_HOST = "slice-1-1"
_STEP = 12
"""Beyond the first save, and before the second."""
_READ_ROWS = "workloads.training.data:Batches.training"


def _at(step: int, deed: Deed, function: str = _READ_ROWS) -> Sabotage:
    return Sabotage(deed, function, (_HOST,), (step, step))


FAULTS = (
    Fault(
        "host-exception",
        "the program of one host fails, the others are well",
        comes_with_the_job,
        Expected(endings=frozenset({"CRASH"}), culprit=f"host-exception-{_HOST}", cause="ValueError: no such row"),
        at_step=_STEP - 1,
        edit=sabotaged(_at(_STEP, "raise")),
    ),
    Fault(
        "host-slow",
        "one host takes a second longer than the others for each step",
        comes_with_the_job,
        Expected(starts=1, charged=0, lost_steps=0, warning=f"host host-slow-{_HOST}"),
        at_step=_STEP,
        job={"training": {"compare_hosts_every_steps": 8}},
        edit=sabotaged(Sabotage("delay", _READ_ROWS, (_HOST,), (9, 16), seconds=1.0)),
    ),
    Fault(
        "step-not-finite",
        "one host's weights are not finite for one step",
        comes_with_the_job,
        # Up to that step the losses are the same bit for bit; later weights lack one update.
        Expected(
            starts=1,
            charged=0,
            lost_steps=0,
            skipped=frozenset({_STEP}),
            loss_tolerance=0.05,
            warning=f"step {_STEP}: loss nan",
        ),
        at_step=_STEP,
        edit=sabotaged(_at(_STEP, "not-finite", TAKE_STEP)),
    ),
    Fault(
        "out-of-memory",
        "a device of one host has no memory for a step",
        comes_with_the_job,
        Expected(
            terminal="Failed",
            starts=1,
            charged=0,
            endings=frozenset({"OUT_OF_MEMORY"}),
            culprit=f"out-of-memory-{_HOST}",
            cause="the step does not fit the memory of a device",
        ),
        at_step=_STEP - 1,
        edit=sabotaged(_at(_STEP, "exhaust")),
    ),
)

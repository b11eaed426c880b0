"""A job slow enough to be where a fault is to strike it: a step is seen up to two seconds after it was done."""

from chaos.fault import TAKE_STEP
from chaos.field import SAVE_EVERY, STEPS
from chaos.sabotage import Sabotage, sabotaged

_HOST = "slice-0-0"
"""All wait for the slowest in every step."""


def at_least(seconds: float) -> Sabotage:
    """Of every step beyond the first save."""
    return Sabotage("delay", TAKE_STEP, (_HOST,), calls=(SAVE_EVERY + 1, STEPS), seconds=seconds)


PACED = sabotaged(at_least(seconds=1.5))
"""For `Fault.edit`: on the fastest machine too, the first save is complete when a strike comes between the saves, and
the job has steps left for 18 s. A queue evicts within two or three."""

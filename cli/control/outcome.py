"""What a command did to a job, for a person and for a program."""

from typing import Literal

from rich.console import Console

from cli import answer
from cli.control.checkpoint import Checkpoint
from cli.control.job import State
from workloads.spec import Spec


class Outcome(Spec):
    """Of one command."""

    job: str
    namespace: str
    done: Literal["cancelled", "retried", "suspended", "resumed", "priority changed", "nothing"]
    """`nothing`: the job was so already."""
    state: State | None
    """Of the job afterwards; None: its JobSet is gone."""
    checkpoint: Checkpoint | None = None
    """The last one; None: nobody looked."""
    notes: tuple[str, ...] = ()
    """What follows from it."""


def tell(outcome: Outcome, console: Console, *, as_json: bool) -> None:
    """Write it."""
    told = (str(outcome.checkpoint),) if outcome.checkpoint else ()
    verdict = outcome.done if outcome.done != "nothing" else f"nothing to do, it is {outcome.state}"
    json = outcome.model_dump_json(indent=1) if as_json else None
    answer.tell(json, f"job {outcome.job}", verdict, (*told, *outcome.notes), console)

"""One start of a job, as its hosts know it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """One start of the job: who asked for it and when."""

    run_id: str
    restart_attempt: int
    began: float
    """Unix seconds."""
    image: str | None
    """Container image with its digest, where it is known."""
    asked_slices: int
    """Slices that the job has when all are there."""
    usd_per_hour: float | None
    """What all of these cost; None: unknown."""

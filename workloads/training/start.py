"""The facts of one attempt of a job that its processes get."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Start:
    """One attempt of the job: one run of its processes."""

    run_id: str
    restart_attempt: int
    began: float
    """Unix time at which this host's process began."""
    image: str | None
    """Container image with its digest. `None` if unknown."""
    asked_slices: int
    """Number of slices that the job asks for."""
    usd_per_hour: float | None
    """Price of all of these slices. `None` if unknown."""

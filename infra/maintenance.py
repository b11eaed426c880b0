"""When GKE may maintain a cluster."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from infra.names import Instant
from workloads.spec import Spec


class MaintenanceWindow(Spec):
    """A recurring time for maintenance, in the terms of GKE."""

    start: Instant
    """First begin, such as 2026-01-03T02:00:00Z."""
    end: Instant
    """First end; at least 48 hours in 32 days must be open to maintenance."""
    recurrence: Annotated[str, Field(pattern="^FREQ=(DAILY|WEEKLY)")]
    """As in RFC 5545, such as FREQ=WEEKLY;BYDAY=SA,SU."""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Self:
        if self.end <= self.start:
            raise ValueError("a window that ends after it starts")
        return self

"""What a stack file says of an environment: a stack that was made from another one and ends.

Owns the section and what follows from it for labels and time. What else must hold for such a stack is judged by
`infra.rules.environment`, when it may no longer be changed by `infra.expiry`; `cli.environments` makes and ends them.
"""

from collections.abc import Mapping
from datetime import datetime

from infra.names import DnsLabel, Instant
from workloads.spec import Spec


class Environment(Spec):
    """Makes the stack an environment, which `multislice env create` does: a copy of another stack with an end.

    A destroy leaves nothing of it, and takes its checkpoint bucket along with all that is in it.
    """

    source: DnsLabel
    """The stack that it was made from."""
    expires_at: Instant
    """Time in UTC, such as 2026-11-21T18:00:00Z. From then on previews and updates are refused, and
    `destroy` is not."""

    @property
    def end(self) -> datetime:
        """When it ends."""
        return datetime.fromisoformat(self.expires_at)

    @property
    def labels(self) -> Mapping[str, str]:
        """By which what it left behind is found in the cloud. Values hold no colons and no capitals."""
        return {"environment-of": self.source, "expires-at": self.expires_at.lower().replace(":", "-")}

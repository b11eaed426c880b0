"""A whole preview as one object: the review, what would change, and what the rules say.

Owns what is in it; who runs the engine and how it reads are others' business.
"""

from typing import Literal

from infra.review.review import Review
from workloads.spec import Spec


class Change(Spec):
    """What the engine would do with one resource."""

    operation: str
    """Pulumi's word, such as `create`, `update`, `replace` or `delete`."""
    type: str
    name: str
    properties: tuple[str, ...]
    """Paths of the inputs that differ."""


class Finding(Spec):
    """A rule that the plan breaks."""

    rule: str
    level: Literal["advisory", "mandatory"]
    severity: str
    resource: str | None
    """Name within the program; None: the stack as a whole."""
    message: str


class Previewed(Spec):
    """What a preview of a stack tells."""

    stack: str
    review: Review | None
    """None: the program ended before it was made, and `errors` says why."""
    changes: tuple[Change, ...]
    unchanged: int
    findings: tuple[Finding, ...]
    errors: tuple[str, ...]
    """Why the engine refuses the plan, besides the findings."""
    seconds: float
    """What the preview took."""

    @property
    def passes(self) -> bool:
        """Whether the plan may be carried out and its job is not known to be unable to run."""
        refused = self.errors or any(finding.level == "mandatory" for finding in self.findings)
        return not refused and self.review is not None and self.review.goes

"""Names that may stand in a stack file.

Owns what a name may be made of and how long it may be; which thing has it is the business of
`infra.stack_file` and `infra.capacity`.
"""

import re
from collections.abc import Callable
from typing import Annotated

from pydantic import AfterValidator

_NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


def _at_most(length: int) -> Callable[[str], str]:
    """A check for names that become names of Kubernetes and Google Cloud objects."""

    def check(name: str) -> str:
        if len(name) > length or not _NAME.fullmatch(name):
            raise ValueError(
                f"a name of at most {length} lower-case letters, digits and hyphens that begins with a letter"
            )
        return name

    return check


ProjectName = Annotated[str, AfterValidator(_at_most(30))]
ClusterName = Annotated[str, AfterValidator(_at_most(20))]
"""Short, for the bucket's name holds the project (at most 30 characters) and this."""
GroupName = Annotated[str, AfterValidator(_at_most(30))]
"""Node pools add an index and end at 40 characters."""
TeamName = Annotated[str, AfterValidator(_at_most(40))]
JobName = Annotated[str, AfterValidator(_at_most(26))]
"""Twice in the coordinator's name, which is a label of at most 63 characters."""
DnsLabel = Annotated[str, AfterValidator(_at_most(63))]

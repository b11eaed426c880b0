"""How a host ended, as a value that an annotation can keep."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from cli.render import exit_words
from infra.cluster.job_state import Kind
from workloads.spec import CONSEQUENCES, ExitCode

_MOST_CHARACTERS = 300
"""Most of each message that an annotation keeps, so that hundreds of ends fit into one."""
_MOST_KEPT = 200


@dataclass(frozen=True)
class HostEnd:
    """End of a host, or of several of which one ended first."""

    host: str
    """Names of hosts, such as `slice-0-1`. Empty: any of the job's hosts."""
    code: int | None
    """Exit code. None: unknown, or its program never ran."""
    at: float
    """Latest possible time of the end."""
    evidence: tuple[str, ...]
    refused_by: str = ""
    """Node that refused its pod, so that its program never ran."""
    recorded: bool = False
    """Whether the host has a record of it. If it was killed, only its process was, and its pod stayed."""

    @property
    def is_certain(self) -> bool:
        """Whether it names the cause. A host that lost another one is not the cause."""
        return bool(self.refused_by) or self.code not in (None, *CONSEQUENCES)

    def words(self, kind: Kind) -> str:
        """Return which host of a job of this kind ended, and how.

        A host that lost another one is not the cause. The exit of that other host is unknown here.
        """
        if self.refused_by:
            return f"node {self.refused_by} refused the pod of host {self.host}"
        if self.code is None:
            return f"{f'host {self.host}' if self.host else 'a host'} was killed or lost with its machine"
        if self.code == ExitCode.PEER_LOST and kind is not Kind.CONTAINER:
            return f"host {self.host} lost the connection to another host"
        return f"host {self.host} exited {exit_words(self.code, kind)}"


def to_text(ends: Mapping[int, HostEnd]) -> str:
    """Return the newest ends, by attempt, as the text of an annotation."""
    kept = sorted(ends.items())[-_MOST_KEPT:]
    return json.dumps({attempt: asdict(end) | {"evidence": [*map(_short, end.evidence)]} for attempt, end in kept})


def from_text(text: str) -> dict[int, HostEnd]:
    """Return the ends in an annotation by attempt; none if it has another form, because members may write it."""
    try:
        return {int(attempt): _read(**end) for attempt, end in json.loads(text or "{}").items()}
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError):
        return {}


def _read(
    host: str, code: int | None, at: float, evidence: list[str], refused_by: str, recorded: bool = False
) -> HostEnd:
    known = None if code is None else int(code)
    return HostEnd(str(host), known, float(at), (*map(str, evidence),), str(refused_by), bool(recorded))


def _short(text: str) -> str:
    return text[:_MOST_CHARACTERS]

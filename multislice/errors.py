"""What a call may raise beside what the function itself raises.

    CallError
    ├── NoSuchStack      the stack is not up, or cannot be asked
    ├── BucketFailed     its checkpoint bucket cannot be read or written from here
    ├── Refused          the call cannot be made so; nothing was submitted
    ├── FunctionRaised   the function raised what cannot travel here; named in its place
    ├── HostFailed       a host ended for a reason that is not the function's own
    ├── CallGone         cancelled, or ended more than a day ago
    └── ResultDamaged    what lies in the bucket is not what the hosts wrote

The function's own exception is raised as what it is, caused by a HostTraceback that shows where it came from.
"""


class CallError(Exception):
    """Base of all errors of this package."""


class NoSuchStack(CallError):
    """The stack is not up, or cannot be asked."""


class BucketFailed(CallError):
    """The stack's checkpoint bucket cannot be read or written from here."""


class Refused(CallError, ValueError):
    """The call cannot be made so; the message says what to change. Nothing was submitted."""


class FunctionRaised(CallError):
    """The function raised an exception that cannot be made again here; the message has its type and its own."""


class HostFailed(CallError):
    """A host ended for a reason that is not the function's own, which the message says."""


class CallGone(CallError):
    """The call was cancelled, or ended so long ago that it has been removed."""


class ResultDamaged(CallError):
    """What lies in the bucket is not what the call's hosts wrote."""


class HostTraceback(Exception):
    """Cause of an exception that a host's function raised: which host, and its traceback."""

    def __init__(self, host: str, lines: list[str]) -> None:
        super().__init__(host, lines)
        self.host = host
        self.lines = lines

    def __str__(self) -> str:
        return "\n".join([f"on {self.host}:", "", *self.lines])

"""Functions on TPU slices: `@multislice.run(stack="dev", slices="trillium")` in front of a Python function.

See docs/functions.md. This lists everything that users need.
"""

from infra.job_state import State
from multislice.attaching import attach, forget
from multislice.call import Call, Status
from multislice.errors import (
    BucketFailed,
    CallError,
    CallGone,
    FunctionRaised,
    HostFailed,
    HostTraceback,
    NoSuchStack,
    Refused,
    ResultDamaged,
)
from multislice.function import Function, run
from multislice.outcome import Outcome

__all__ = [
    "BucketFailed",
    "Call",
    "CallError",
    "CallGone",
    "Function",
    "FunctionRaised",
    "HostFailed",
    "HostTraceback",
    "NoSuchStack",
    "Outcome",
    "Refused",
    "ResultDamaged",
    "State",
    "Status",
    "attach",
    "forget",
    "run",
]

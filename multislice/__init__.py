"""Functions on TPU slices: `@multislice.run(stack="dev", slices="trillium")` in front of a Python function.

See docs/functions.md. Everything that people use is named here.
"""

from multislice.attaching import attach, forget
from multislice.call import Call
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
from multislice.status import State, Status

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

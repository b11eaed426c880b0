"""Runs Python functions on TPU slices, with the decorator `@multislice.run(stack="dev", slices="trillium")`.

See docs/how-to/functions.md. `__all__` lists the public API.
"""

from infra.cluster.job_state import State
from multislice.call import Call, Status
from multislice.errors import (
    BucketFailed,
    CallError,
    CallGone,
    FunctionRaised,
    HostFailed,
    HostTraceback,
    NoSuchStack,
    Outcome,
    Refused,
    ResultDamaged,
)
from multislice.function import Function, run
from multislice.submission import attach, forget
from workloads.call.checkpoints import checkpoint_folder, resumable

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
    "checkpoint_folder",
    "forget",
    "resumable",
    "run",
]

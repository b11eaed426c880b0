"""Rules of jobs that run containers: which variables and ports are theirs."""

from collections.abc import Iterator

from infra.faults import Fault
from infra.jobs import ContainerJob
from infra.programs import TAKEN_PREFIXES, TAKEN_VARIABLES, TPU_METRICS_PORT, TPU_METRICS_PORT_NAME
from infra.rules.draft import Draft

_FREE = ("HOME", "PATH", "TMPDIR")
"""The container's own, which its stack file may change."""
_FREE_PREFIXES = ("JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Of variables that programs read as they start: here the program is the user's."""


def check(path: str, job: ContainerJob, draft: Draft) -> Iterator[Fault]:
    """Faults of one job."""
    secrets = draft.secrets if job.secrets is None else job.secrets
    for name in job.env:
        free = name in _FREE or name.startswith(_FREE_PREFIXES)
        if not free and (name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES)):
            expected = "a variable that neither GKE nor the job itself sets"
            yield Fault(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
        elif name in secrets:
            expected = "a variable that is set once"
            yield Fault(f"{path}.env.{name}", expected, "a secret of that name too", "remove one of them")
    for name, port in job.ports.items():
        if name == TPU_METRICS_PORT_NAME or port == TPU_METRICS_PORT:
            expected = f"a port other than {TPU_METRICS_PORT_NAME} {TPU_METRICS_PORT}, where libtpu answers GKE"
            yield Fault(f"{path}.ports.{name}", expected, f"{name} {port}", "choose another")

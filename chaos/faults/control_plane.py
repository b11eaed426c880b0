"""Faults that strike those who run the job: its controller, the API server, etcd, everything at once."""

import os
import signal
import time
from collections.abc import Callable

from chaos.fault import UNDISTURBED, Expected, Fault
from chaos.faults.pace import PACED
from chaos.faults.process import GONE
from chaos.field import BETWEEN_SAVES, Field
from chaos.operators import operator_down
from sandbox import daemon
from sandbox.site import taken_ports

_STAYS_SECONDS = 5
_BACK_SECONDS = 120


def _fail_while_jobset_is_down(field: Field, job: str) -> None:
    with operator_down(field, "jobset"):
        field.send(signal.SIGKILL, job, "slice-1-0")
        field.wait(f"a failed Job of {job}", lambda: _failed_jobs(field, job), _BACK_SECONDS)
        time.sleep(_STAYS_SECONDS)


def _failed_jobs(field: Field, job: str) -> bool:
    jobs = field.objects("/apis/batch/v1/jobs", f"jobset.sigs.k8s.io/jobset-name={job}")
    conditions = [condition for each in jobs for condition in each["status"].get("conditions", [])]
    return any(condition["type"] == "Failed" for condition in conditions)


def _kill_server(name: str) -> Callable[[Field, str], None]:
    """Kills a server, and waits until the sandbox has started it anew and the API answers."""

    def strike(field: Field, _: str) -> None:
        before = field.server_pid(name)
        os.kill(before, signal.SIGKILL)
        field.wait(f"another {name}", lambda: field.server_pid(name) != before and field.api.ready(), _BACK_SECONDS)

    return strike


def _kill_sandbox(field: Field, _: str) -> None:
    pid = daemon.running(field.site)
    assert pid is not None, "the sandbox of a running job runs"
    os.kill(pid, signal.SIGKILL)
    field.wait(
        "the sandbox to be gone", lambda: not (daemon.running(field.site) or taken_ports(field.site)), _BACK_SECONDS
    )
    daemon.start(field.site, lambda _: None)


FAULTS = (
    Fault(
        "jobset-down",
        "a host is killed while the JobSet controller is down",
        _fail_while_jobset_is_down,
        Expected(endings=GONE, event=r"jobset-down-slice-1-0-\S+ failed with exit code 137"),
        at_step=BETWEEN_SAVES,
        edit=PACED,
    ),
    Fault(
        "api-server-killed",
        "the API server restarts",
        _kill_server("kube-apiserver"),
        UNDISTURBED,
        BETWEEN_SAVES,
        edit=PACED,
    ),
    Fault("etcd-killed", "etcd restarts", _kill_server("etcd"), UNDISTURBED, BETWEEN_SAVES, edit=PACED),
    Fault(
        "sandbox-killed",
        "everything stops at once, as when the power fails, and starts again",
        _kill_sandbox,
        # Nobody is left to say that it was not the job.
        Expected(endings=GONE),
        at_step=BETWEEN_SAVES,
        edit=PACED,
    ),
)

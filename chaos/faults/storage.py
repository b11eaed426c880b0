"""Faults of the object store, and of what lies in it between two starts."""

import argparse
import inspect
import os
import resource
import signal
import tempfile
import time
import urllib.request
from pathlib import Path
from types import ModuleType
from urllib.parse import quote

from chaos.fault import UNDISTURBED, Expected, Fault
from chaos.faults.pace import PACED
from chaos.field import BETWEEN_SAVES, BUCKET, NAMESPACE, SAVE_EVERY, Field
from workloads.data.documents import TextField
from workloads.data.encoders import BYTES, load_encoder
from workloads.data.prepare import Request, prepare

_STILL_SECONDS = 15.0
"""The second save falls into it."""
_SAVED_SECONDS = 60
_FAILED_SECONDS = 180
_SERVER = "fake-gcs-server"
_DATA = "data-changed/tokens"


def _stand_still_for_a_while(field: Field, job: str) -> None:
    server = field.server_pid(_SERVER)
    os.kill(server, signal.SIGSTOP)
    try:
        time.sleep(_STILL_SECONDS)
    finally:
        os.kill(server, signal.SIGCONT)
    back, step = time.time(), 2 * SAVE_EVERY
    field.wait(f"the checkpoint of step {step}, since then", lambda: _saved(field, job, step) > back, _SAVED_SECONDS)


def _saved(field: Field, job: str, step: int) -> float:
    """When the leader learned of it; 0: not yet."""
    saves = field.history(job).events("CheckpointSaved")
    return max((event.time for event in saves if event.facts["step"] == step), default=0.0)


def _fill(field: Field, job: str) -> None:
    """The store takes no byte more until the job has given up its start.

    As a limit of the server's process, since to mount a small disk takes root.
    """
    server = field.server_pid(_SERVER)
    soft, hard = resource.prlimit(server, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    try:
        field.wait(f"{job} to restart", lambda: field.jobset(job)["status"].get("restarts", 0) > 0, _FAILED_SECONDS)
        field.wait("a log that says why", lambda: _logged(field, job, "stopped: "), 1)
    finally:
        resource.prlimit(server, resource.RLIMIT_FSIZE, (soft, hard))


def _logged(field: Field, job: str, words: str) -> bool:
    """Whether a pod of the job wrote these words."""
    logs = (field.site.logs / "pods").glob(f"{NAMESPACE}_{job}-*/*.log")
    return any(words in log.read_text(errors="replace") for log in logs)


def _put_data(field: Field, text: ModuleType) -> None:
    """The token folder of the job, made of the sources of a module."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "tokens")
        request = Request((inspect.getfile(text),), str(output), TextField("text"), "\n")
        prepare(request, load_encoder(BYTES), lambda _: None)
        for path in output.iterdir():
            name = quote(f"{_DATA}/{path.name}", safe="")
            url = f"{field.site.gcs_url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}"
            with urllib.request.urlopen(urllib.request.Request(url, path.read_bytes(), method="POST")):
                pass


def _change_data(field: Field, job: str) -> None:
    _put_data(field, argparse)
    field.send(signal.SIGKILL, job, "slice-1-1")


FAULTS = (
    Fault(
        "store-stands-still",
        "the store does not answer for a while",
        _stand_still_for_a_while,
        UNDISTURBED,
        at_step=BETWEEN_SAVES,
        edit=PACED,
    ),
    Fault(
        "store-full",
        "the store refuses every write until the job has given up, and then has room again",
        _fill,
        # No record of a failure can be written there either: the pods' logs tell it.
        Expected(endings=frozenset({"KILLED"}), lost_steps=2 * SAVE_EVERY, recovery_seconds=180),
        at_step=BETWEEN_SAVES,
        edit=PACED,
        # Whoever writes tries again for minutes; a step that takes so long is a hang.
        job={"training": {"step_timeout_minutes": 0.75}, "grace_seconds": 15},
    ),
    Fault(
        "data-changed",
        "other tokens lie where the job's data was, and a host is killed",
        _change_data,
        Expected(
            terminal="Failed",
            starts=1,
            culprit="data-changed-slice-0-0",
            cause="data.digest: expected",
            same_data=False,
        ),
        at_step=BETWEEN_SAVES,
        edit=PACED,
        before=lambda field: _put_data(field, inspect),
        job={"data": {"source": "token-file", "path": f"gs://{BUCKET}/{_DATA}", "held_out_fraction": 0.3}},
    ),
)

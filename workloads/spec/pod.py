"""What crosses between the plan and a running pod: its environment going in, its exit code coming out."""

from enum import IntEnum

JOB_SPEC_VARIABLE = "JOB_SPEC"
"""Environment variable of the pod that holds the JobSpec as JSON."""

CALL_SPEC_VARIABLE = "CALL_SPEC"
CALL_KEY_VARIABLE = "CALL_KEY"
"""Environment variable of the pod that holds the CallSpec as JSON."""

SLICES_VARIABLE = "CHECKED_SLICES"
"""Environment variable of the slice check that holds the SliceSpec as JSON."""

JOB_FOLDER_VARIABLE = "JOB_FOLDER"
"""Environment variable with the folder of the checkpoint bucket where the files of a program that is not the trainer
belong."""

RUN_ID_VARIABLE = "RUN_ID"
"""Environment variable that names this submission of the job (the JobSet's uid on a cluster)."""

IMAGE_VARIABLE = "IMAGE"
"""Environment variable with the container image and its digest, for the record; may be missing."""

START_VARIABLE = "JOB_RESTART_ATTEMPT"
"""Environment variable with the number of restarts before this start (JobSet's restart-attempt)."""

PRICE_VARIABLE = "USD_PER_HOUR"
"""Environment variable with what all slices of the job cost in USD per hour, for the record; may be missing."""

PROFILE_REQUEST = "profiles/request"
"""File in a run's folder by which somebody asks for a profile of some steps; the leader removes it."""

NODE_VARIABLE = "NODE_NAME"
"""Environment variable with the node's name; may be missing."""

METRICS_ADDRESS_VARIABLE = "METRICS_ADDRESS"
"""Environment variable with the address of the host at which it answers who collects metrics; missing: nowhere."""

METRICS_PORT = 9464
"""Where it answers: the port that OpenTelemetry's exporters for Prometheus have
(https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#prometheus-exporter)."""

API_ACCESS_PATH = "/mnt"
"""Folder of the pod with `token` and `ca.crt` for the API server; may be missing. One that every machine has, for
the sandbox mounts on what is there."""

BAD_HOST_KEY = "tpu-multislice.dev/bad-host"
"""Taint of a node whose slice has a bad host, and the annotation that says why."""

BAD_HOST_CHARACTERS = 1024
"""As many as the annotation may have."""


class ExitCode(IntEnum):
    """Why a host process ended; `infra.jobset` turns these into failure policy rules."""

    DONE = 0
    CRASH = 1
    """Unknown failure: restart, counts against `max_restarts`."""
    INVALID_SPEC = 20
    """The JobSpec or its data cannot work here: fail the job at once."""
    OUT_OF_MEMORY = 21
    """The step does not fit the chips: fail the job at once."""
    DIVERGED = 22
    """Loss or gradients stay not finite or too large: fail the job at once."""
    BAD_HOST = 23
    """A host failed its checks and the nodes of its slice are marked: restart without using up `max_restarts`."""
    HANG = 24
    """No step finished in time, or not all hosts came: restart, counts."""
    NO_CHECKPOINT = 25
    """The run has checkpoints and none can be used: fail the job at once, for a restart would begin at step 0."""
    SILENT_DAMAGE = 26
    """Slices hold or hear different numbers where they must be the same: restart from a good checkpoint, counts."""
    FUNCTION_RAISED = 27
    """The function of a call raised an exception, or what it returned cannot travel: fail the job at once."""
    PEER_LOST = 134
    """SIGABRT: JAX aborts a host that lost another one, whose own end says why: restart, counts."""
    PREEMPTED = 143
    """SIGTERM: restart without using up `max_restarts`."""


FATAL_CODES = (
    ExitCode.INVALID_SPEC,
    ExitCode.OUT_OF_MEMORY,
    ExitCode.DIVERGED,
    ExitCode.NO_CHECKPOINT,
    ExitCode.FUNCTION_RAISED,
)
"""No restart can help, and none follows."""


def cause_order(code: int, at: float) -> tuple[bool, float]:
    """Sort key of the ends of hosts: the end that caused the others comes first.

    A host that lost another one says nothing of the cause, whenever it ended.
    """
    return code == ExitCode.PEER_LOST, at

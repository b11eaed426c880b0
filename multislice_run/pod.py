"""The interface between the plan and a running pod: environment variables in, exit codes out."""

import re
from enum import IntEnum

JOB_SPEC_VARIABLE = "JOB_SPEC"
"""Environment variable of the pod that holds the JobSpec as JSON."""

CALL_SPEC_VARIABLE = "CALL_SPEC"
CALL_KEY_VARIABLE = "CALL_KEY"
"""Environment variable of the pod that holds the CallSpec as JSON."""

SLICES_VARIABLE = "CHECKED_SLICES"
"""Environment variable of the slice check that holds the SliceSpec as JSON."""

JOB_FOLDER_VARIABLE = "JOB_FOLDER"
"""Environment variable with the folder of the checkpoint bucket for the files of a program other than the trainer."""

RUN_ID_VARIABLE = "RUN_ID"
"""Environment variable with the id of this submission of the job (the JobSet's uid on a cluster)."""

IMAGE_VARIABLE = "IMAGE"
"""Environment variable with the container image and its digest, for the record. Optional."""

START_VARIABLE = "JOB_RESTART_ATTEMPT"
"""Environment variable with the number of restarts before this attempt. It is JobSet's restart-attempt, or
comes from the supervisor of a pod that stays."""

PRICE_VARIABLE = "USD_PER_HOUR"
"""Environment variable with the price of all slices of the job in USD per hour, for the record. Optional."""

PROFILES = "profiles"
"""Folder of profiles in a run's folder."""

XPROF_FOLDER = "plugins/profile"
"""Folder in which XProf looks for captures, below its log folder."""

PROFILE_REQUEST = f"{PROFILES}/request"
"""File in a run's folder that requests a profile of some steps. The leader removes it."""

LOCAL_CHECKPOINTS_VARIABLE = "LOCAL_CHECKPOINTS"
"""Environment variable with a folder in the memory of the pod, which outlives the process. For local checkpoints."""

NODE_VARIABLE = "NODE_NAME"
"""Environment variable with the node's name. Optional."""

METRICS_ADDRESS_VARIABLE = "METRICS_ADDRESS"
"""Environment variable with the address on which the host serves its metrics. Without it, metrics are not served."""

METRICS_PORT = 9464
"""Port of the metrics, the same as of OpenTelemetry's exporters for Prometheus
(https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#prometheus-exporter)."""

HEARTBEAT_VARIABLE = "JOB_HEARTBEAT_FILE"
"""Environment variable with the file that a program with `records` touches as its sign of life. Optional."""

API_ACCESS_PATH = "/mnt"
"""Folder of the pod with `token` and `ca.crt` for the API server. Optional. Every machine has this folder, which the
sandbox needs for its mounts."""

BAD_HOST_KEY = "tpu-multislice.dev/bad-host"
"""Taint of a node whose slice has a bad host, and the annotation with the reason."""

BAD_HOST_CHARACTERS = 1024
"""Longest text of the annotation, in characters."""


class ExitCode(IntEnum):
    """Exit codes of a host process. `infra.jobset` turns them into failure policy rules."""

    DONE = 0
    CRASH = 1
    """Unknown failure: restart, counts against `max_restarts`."""
    INVALID_SPEC = 20
    """The JobSpec or its data cannot work here: fail the job at once."""
    OUT_OF_MEMORY = 21
    """The step does not fit the chips: fail the job at once."""
    DIVERGED = 22
    """Loss or gradients stay infinite, NaN or too large: fail the job at once."""
    BAD_HOST = 23
    """A host failed its checks and the nodes of its slice are marked: restart without using up `max_restarts`."""
    HANG = 24
    """No step finished in time, not all hosts joined, or each waits for others: restart, counts against
    `max_restarts`."""
    NO_CHECKPOINT = 25
    """The run has checkpoints, but none can be used: fail the job at once, because a restart would begin at step 0."""
    SILENT_DAMAGE = 26
    """Slices hold or receive different numbers where they must be equal: restart from a good checkpoint, counts against
    `max_restarts`."""
    FUNCTION_RAISED = 27
    """The function of a call raised an exception, or its result cannot be sent: fail the job at once."""
    RESTARTS_USED_UP = 28
    """The processes of the job failed more often than `max_restarts` allows: fail the job at once."""
    PEER_LOST = 134
    """SIGABRT: JAX aborts a host that lost another one, whose own exit has the cause: restart, counts against
    `max_restarts`."""
    PREEMPTED = 143
    """SIGTERM: restart without using up `max_restarts`."""


UNCOUNTED_CODES = (ExitCode.BAD_HOST, ExitCode.PREEMPTED)
"""Exit codes after which a restart does not count against `max_restarts`, because the job did not cause them."""

FATAL_CODES = (
    ExitCode.INVALID_SPEC,
    ExitCode.OUT_OF_MEMORY,
    ExitCode.DIVERGED,
    ExitCode.NO_CHECKPOINT,
    ExitCode.FUNCTION_RAISED,
    ExitCode.RESTARTS_USED_UP,
)
"""Exit codes after which a restart cannot help. The job fails at once."""


CONSEQUENCES = (ExitCode.PEER_LOST, ExitCode.RESTARTS_USED_UP)
"""Exit codes that follow from the exit of another process."""


def cause_order(code: int, at: float) -> tuple[bool, float]:
    """Return a sort key of the exits of hosts: the exit that caused the others comes first.

    The exit of a host that lost another one is never the cause, whenever it ended.
    """
    return code in CONSEQUENCES, at


ATTEMPT_BEGINS = re.compile(r"attempt (\d{1,9}) of the job begins")
"""Line in the log of a pod that stays, before those of each attempt."""


def attempt_begins(attempt: int) -> str:
    """Return the line before those of an attempt, which `attempt` others precede."""
    return f"attempt {attempt + 1} of the job begins"


def exit_name(code: int) -> str:
    """Return the name of an exit code in records, such as `HANG`; its digits if it has none."""
    return ExitCode(code).name if code in set(ExitCode) else str(code)

"""What the plan passes to a running pod: environment variables, paths and ports."""

import re

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

ATTEMPT_BEGINS = re.compile(r"attempt (\d{1,9}) of the job begins")
"""Line in the log of a pod that stays, before those of each attempt."""


def attempt_begins(attempt: int) -> str:
    """Return the line before those of an attempt, which `attempt` others precede."""
    return f"attempt {attempt + 1} of the job begins"

"""Environment variables that tell a container about its pod and its job.

Those of a single program are in `infra.programs` and `infra.pathways`.
"""

from infra.names import Manifest
from infra.submission import Submission

PARALLELISM_VARIABLE = "JOBSET_REPLICATEDJOB_PARALLELISM"
"""Number of hosts of a slice. JobSet has a label for the number of slices but none for this."""

_LOGS: Manifest = {"name": "TPU_LOG_DIR", "value": "/tmp/libtpu"}
"""Folder for libtpu's logs. GKE's device plugin mounts a folder of the node that belongs to root over libtpu's own
choice, /tmp/tpu_logs, so that no other user can write there (https://github.com/skypilot-org/skypilot/pull/3947).
libtpu makes the folder but not its parents."""


def label(name: str, jobset_label: str) -> Manifest:
    """Return the variable `name` with the value of one of JobSet's labels of the pod."""
    return field(name, f"metadata.labels['jobset.sigs.k8s.io/{jobset_label}']")


def field(name: str, path: str) -> Manifest:
    """Return the variable `name` with the value of a field of the pod."""
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def of_a_tpu_container(submission: Submission) -> list[Manifest]:
    """Return what a container with chips is told on top of what GKE tells it.

    GKE is reported to set the three of MEGASCALE as well, but does not document when. Without them each slice would
    work alone, so they come from JobSet's labels. They are set on one slice too: JAX asks the metadata server for
    those that are missing (jax/_src/clusters/cloud_tpu_cluster.py).
    """
    return [
        _LOGS,
        {"name": PARALLELISM_VARIABLE, "value": str(submission.slices.hosts)},
        label("MEGASCALE_NUM_SLICES", "replicatedjob-replicas"),
        label("MEGASCALE_SLICE_ID", "job-index"),
        label("MEGASCALE_COORDINATOR_ADDRESS", "coordinator"),
    ]

"""Meshes of up to eight CPU devices, with settings of the training, that a job must train on as on one device."""

from pathlib import Path
from typing import Any

from tests.workloads.jobs import changed, small_job, validated
from workloads.spec import JobSpec, MeshSpec

EACH_STEP = {"gather_weights": "each-step"}
LAYOUTS: dict[str, tuple[MeshSpec, dict[str, Any]]] = {
    "one device": (MeshSpec(replica=1, fsdp=1), {}),
    "replica 2": (MeshSpec(replica=2, fsdp=1), {}),
    "fsdp 8": (MeshSpec(replica=1, fsdp=8), {}),
    "replica 2 x fsdp 4": (MeshSpec(replica=2, fsdp=4), {}),
    "replica 2 x fsdp 2 x tensor 2": (MeshSpec(replica=2, fsdp=2, tensor=2), {}),
    "stage 2 x fsdp 4": (MeshSpec(replica=1, stage=2, fsdp=4), {"accumulation": 2, **EACH_STEP}),
    "replica 2 x stage 2 x tensor 2": (
        MeshSpec(replica=2, stage=2, fsdp=1, tensor=2),
        {"accumulation": 4, **EACH_STEP},
    ),
    "accumulation 4": (MeshSpec(replica=2, fsdp=2), {"accumulation": 4}),
    "accumulation 4, weights gathered once": (MeshSpec(replica=2, fsdp=2), {"accumulation": 4, **EACH_STEP}),
    "replica 3": (MeshSpec(replica=3, fsdp=1), {}),
    "replica 5": (MeshSpec(replica=5, fsdp=1), {}),
    "replica 3 x fsdp 2, accumulation 2": (MeshSpec(replica=3, fsdp=2), {"accumulation": 2}),
    "replica 3, accumulation 4, weights gathered once": (
        MeshSpec(replica=3, fsdp=1),
        {"accumulation": 4, **EACH_STEP},
    ),
    "replica 3 x stage 2": (MeshSpec(replica=3, stage=2, fsdp=1), {"accumulation": 3, **EACH_STEP}),
    "replica 3 x tensor 2": (MeshSpec(replica=3, fsdp=1, tensor=2), {}),
}
TENSOR, STAGES = "replica 2 x fsdp 2 x tensor 2", "replica 2 x stage 2 x tensor 2"
UNEVEN, UNEVEN_STAGES = "replica 3 x fsdp 2, accumulation 2", "replica 3 x stage 2"


def job_on(layout: str, training: dict[str, Any], **sections: dict[str, Any]) -> JobSpec:
    """Return a job with batches of 16 rows in this layout, with some values of its sections replaced."""
    mesh, settings = LAYOUTS[layout]
    slices = 2 if layout == "stage 2 x fsdp 4" else mesh.replica
    uneven = 1 if 16 % (mesh.data_shards * settings.get("accumulation", 1)) else None
    plain = small_job(Path("unused"), slices, mesh.devices // slices, min_count=uneven, **training)
    return validated(changed(plain, training=settings, **sections), mesh=mesh)

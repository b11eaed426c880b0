"""Small jobs for tests, which are quick to compile and have few steps."""

from pathlib import Path
from typing import Any

from workloads.spec import JobSpec, MeshSpec, SliceSpec, StandardLibrarySpec, StorageSpec, load_preset


def small_job(
    storage: Path, replica: int = 2, fsdp: int = 4, hosts: int = 1, min_count: int | None = None, **training: Any
) -> JobSpec:
    """Return the tiny preset on `replica` slices of `fsdp` CPU devices, with some training settings replaced."""
    preset = load_preset("tiny")
    assert preset.data
    slices = SliceSpec.of_cpu(count=replica, hosts=hosts, chips_per_host=fsdp // hosts)
    quick = {"steps": 8, "save_every_steps": 4, "evaluate_every_steps": 100, "evaluation_batches": 1}
    return JobSpec(
        name="test",
        preset="tiny",
        slices=slices.model_copy(update={"min_count": min_count}),
        mesh=MeshSpec(replica=replica, fsdp=fsdp),
        model=preset.model,
        data=StandardLibrarySpec(source="python-stdlib", max_bytes=1 << 18, held_out_fraction=0.05),
        optimizer=preset.optimizer,
        training=preset.training.model_copy(update={**quick, "sequence_length": 64, "global_batch": 16, **training}),
        storage=StorageSpec(path=str(storage), existing_run="resume"),
    )


def changed(job: JobSpec, **sections: dict[str, Any]) -> JobSpec:
    """Return the job with some values of its sections replaced. They are not validated."""
    replaced = {name: getattr(job, name).model_copy(update=values) for name, values in sections.items()}
    return job.model_copy(update=replaced)


def validated(job: JobSpec, **replaced: Any) -> JobSpec:
    """Return the job with these settings, if it is still a valid job."""
    return JobSpec.model_validate(job.model_dump() | replaced)

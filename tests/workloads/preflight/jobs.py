"""Jobs whose program is compiled ahead of time, or whose compiled text is stored."""

from infra.stack.submission import slice_spec
from infra.stack.tpu import resolve
from workloads.spec import JobSpec, MeshSpec, SliceSpec, StorageSpec, load_preset


def slices_of(generation: str, topology: str, count: int = 1) -> SliceSpec:
    """Return slices as the program plans them."""
    return slice_spec(resolve(generation, topology), count)


def v6e_job() -> JobSpec:
    """Return the tiny preset on two v6e slices of 16 chips."""
    preset = load_preset("tiny")
    assert preset.data
    return JobSpec(
        name="tiny",
        preset="tiny",
        slices=slices_of("v6e", "4x4", 2),
        mesh=MeshSpec(replica=2, fsdp=16),
        model=preset.model,
        data=preset.data,
        optimizer=preset.optimizer,
        # The kernel is set, because the preflight of `auto` compiles others too.
        training=preset.training.model_copy(update={"attention": "splash"}),
        storage=StorageSpec(path="unused", existing_run="resume"),
    )

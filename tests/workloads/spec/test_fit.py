from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import JobSpec, LoraSpec, MeshSpec, ModelSpec, SliceSpec, TrainingSpec, WindowSpec
from workloads.spec.fit import legal_meshes, size_faults
from workloads.spec.training import LoraTarget

JOB = small_job(Path("somewhere"))
"""Two slices of four devices."""

EACH_STEP = JOB.training.model_copy(update={"gather_weights": "each-step"})


def describe_faults(mesh: MeshSpec, model: ModelSpec = JOB.model, training: TrainingSpec = EACH_STEP) -> str:
    return "; ".join(size_faults(JOB.slices, mesh, model, training))


STAGES = MeshSpec(replica=1, stage=2, fsdp=4)
THREE_KINDS = WindowSpec(size=8, pattern=("local", "local", "global"))


@pytest.mark.parametrize(
    ("mesh", "model", "training", "fault"),
    [
        (MeshSpec(replica=2, fsdp=3), {}, {}, "must have the 8 devices of 2 slices of 4 devices, got 6"),
        (MeshSpec(replica=1, fsdp=8), {}, {}, "fsdp x tensor must divide the 4 devices of a slice"),
        (MeshSpec(replica=1, stage=4, fsdp=2), {}, {}, "model.layers must be a multiple of mesh.stage (4), got 2"),
        (MeshSpec(replica=2, fsdp=1, tensor=4), {}, {}, "model.kv_heads must be a multiple of mesh.tensor (4), got 2"),
        # Every stage holds whole rounds of a pattern of layers.
        (
            MeshSpec(replica=1, stage=8, fsdp=1),
            {"layers": 12, "windows": THREE_KINDS},
            {},
            "mesh.stage (8) x layers of model.windows.pattern (3), got 12",
        ),
        (MeshSpec(replica=1, stage=4, fsdp=2), {"layers": 12, "windows": THREE_KINDS}, {}, ""),
        (MeshSpec(replica=2, fsdp=4), {"layers": 5, "windows": THREE_KINDS}, {}, ""),
        (JOB.mesh, {}, {"accumulation": 4}, "training.global_batch must be a multiple of mesh.replica x mesh.fsdp x a"),
        (STAGES, {}, {"gather_weights": "each-layer"}, "training.gather_weights must be each-step with mesh.stage"),
        (STAGES, {}, {}, ""),
        (JOB.mesh, {}, {"global_batch": 7, "sequence_length": 63}, "no mesh of these 8 devices fits the job's sizes"),
    ],
)
def test_what_does_not_fit_a_mesh_is_reported(
    mesh: MeshSpec, model: dict[str, Any], training: dict[str, Any], fault: str
) -> None:
    said = describe_faults(mesh, JOB.model.model_copy(update=model), EACH_STEP.model_copy(update=training))
    assert fault in said
    assert bool(fault) == bool(said)


@pytest.mark.parametrize(("stage", "replica", "fits"), [(2, 3, True), (3, 2, False), (6, 1, True)])
def test_stages_lie_within_a_slice_or_are_made_of_whole_ones(stage: int, replica: int, fits: bool) -> None:
    slices = JOB.slices.model_copy(update={"count": 3})
    model = JOB.model.model_copy(update={"layers": 6})
    training = EACH_STEP.model_copy(update={"global_batch": 12, "sequence_length": 48})
    faults = size_faults(slices, MeshSpec(replica=replica, stage=stage, fsdp=2), model, training)
    wrong = "mesh.stage must divide the 2 groups of fsdp x tensor devices in a slice, or be a multiple of them, got 3"
    assert faults[:1] == ([] if fits else [wrong])


def test_all_faults_are_reported_at_once_and_the_nearest_meshes_named() -> None:
    model = JOB.model.model_copy(update={"kv_heads": 1, "query_heads": 1, "mlp_dim": 190})
    training = EACH_STEP.model_copy(update={"sequence_length": 63})
    assert describe_faults(MeshSpec(replica=2, fsdp=2, tensor=2), model, training).split("; ") == [
        "model.kv_heads must be a multiple of mesh.tensor (2), got 1",
        "model.mlp_dim must be a multiple of mesh.fsdp x mesh.tensor (4), got 190",
        "training.sequence_length must be a multiple of mesh.tensor x mesh.stage (2), got 63",
        "nearest that fit: replica 4 x fsdp 2, or replica 8 x fsdp 1",
    ]


def test_adapters_of_queries_keys_and_values_are_split_by_columns_too() -> None:
    slices, mesh = SliceSpec.of_cpu(count=1, hosts=1, chips_per_host=8), MeshSpec(replica=1, fsdp=8)
    model = JOB.model.model_copy(update={"query_heads": 4, "kv_heads": 1, "head_dim": 2})
    assert not size_faults(slices, mesh, model, JOB.training)
    cases: tuple[tuple[tuple[LoraTarget, ...], bool], ...] = ((("gate", "down"), True), (("query_key_value",), False))
    for targets, fits in cases:
        lora = LoraSpec(rank=4, alpha=8, targets=targets)
        faults = size_faults(slices, mesh, model, JOB.training.model_copy(update={"lora": lora}))
        fault = (
            "model.(query_heads + 2 x kv_heads) x head_dim must be a multiple of mesh.fsdp (8) with training.lora,"
            " got 12"
        )
        assert faults[:1] == ([] if fits else [fault])


def test_a_pipeline_gets_the_meshes_that_gathering_once_a_step_would_allow() -> None:
    faults = size_faults(JOB.slices, MeshSpec(replica=1, stage=2, fsdp=4), JOB.model, JOB.training)
    # Of meshes that are equally near, the simplest come first.
    assert faults[1:] == [
        "nearest that fit: replica 2 x fsdp 4, or replica 4 x fsdp 2, or replica 2 x fsdp 2 x tensor 2",
        "nearest with stages, using training.gather_weights each-step: replica 1 x stage 2 x fsdp 4,"
        " or replica 2 x stage 2 x fsdp 2, or replica 1 x stage 2 x fsdp 2 x tensor 2",
    ]
    assert not any(
        "with stages" in fault
        for fault in size_faults(JOB.slices, MeshSpec(replica=1, fsdp=4), JOB.model, JOB.training)
    )


def test_where_a_pipeline_alone_fits_no_size_is_to_blame() -> None:
    training = JOB.training.model_copy(update={"global_batch": 1})
    model = JOB.model.model_copy(update={"layers": 8, "kv_heads": 1})
    faults = size_faults(JOB.slices, MeshSpec(replica=1, stage=8, fsdp=1), model, training)
    assert faults[1:] == ["nearest with stages, using training.gather_weights each-step: replica 1 x stage 8 x fsdp 1"]


@st.composite
def jobs(draw: st.DrawFn) -> tuple[SliceSpec, ModelSpec, TrainingSpec]:
    """Draw small slices, and sizes that fit some meshes."""
    slices = JOB.slices.model_copy(
        update={"count": draw(st.integers(1, 4)), "hosts": 1, "chips_per_host": draw(st.sampled_from([1, 2, 4, 6, 8]))}
    )
    model = JOB.model.model_copy(
        update={
            "layers": draw(st.sampled_from([2, 3, 4])),
            "vocab_size": draw(st.sampled_from([256, 250])),
            "kv_heads": draw(st.sampled_from([1, 2, 4])),
            "mlp_dim": draw(st.sampled_from([192, 96, 100])),
        }
    )
    training = JOB.training.model_copy(
        update={
            "global_batch": draw(st.sampled_from([16, 48, 96])),
            "sequence_length": draw(st.sampled_from([64, 63])),
            "accumulation": draw(st.integers(1, 2)),
            "gather_weights": draw(st.sampled_from(["each-layer", "each-step"])),
        }
    )
    return slices, model, training


@settings(deadline=None)
@given(jobs())
@pytest.mark.costs(cpu_seconds=6)
def test_the_legal_meshes_are_those_that_make_a_job(sizes: tuple[SliceSpec, ModelSpec, TrainingSpec]) -> None:
    slices, model, training = sizes
    legal = {tuple(mesh.sizes.values()) for mesh in legal_meshes(slices, model, training)}
    divisors = [size for size in range(1, slices.devices + 1) if slices.devices % size == 0]
    for axes in product(divisors, repeat=4):
        mesh = MeshSpec(replica=axes[0], stage=axes[1], fsdp=axes[2], tensor=axes[3])
        if mesh.devices == slices.devices:
            assert makes_a_job(slices, mesh, model, training) == (axes in legal)


def makes_a_job(slices: SliceSpec, mesh: MeshSpec, model: ModelSpec, training: TrainingSpec) -> bool:
    changes = {"slices": slices, "mesh": mesh, "model": model, "training": training}
    try:
        JobSpec.model_validate(JOB.model_dump() | {name: one.model_dump() for name, one in changes.items()})
    except ValidationError:
        return False
    return True

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.workloads.jobs import changed, validated
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight.remedies import ENOUGH, TRIES, Change, Outcome, changes, remedies
from workloads.spec import JobSpec, MeshSpec

UNFIT = Outcome(False, 40.0, None)


def job(mesh: MeshSpec | None = None, **training: Any) -> JobSpec:
    sized = changed(v6e_job(), training={"global_batch": 128, "sequence_length": 1024} | training)
    return validated(sized, mesh=mesh or sized.mesh)


def words(spec: JobSpec) -> list[str]:
    return [change.words for change in changes(spec)]


def test_one_setting_is_changed_before_several_and_the_mesh_last() -> None:
    tried = words(job(attention="reference", remat="dots"))
    assert tried[:6] == [
        "training.attention: splash",
        "training.accumulation: 2",
        "training.remat: attention",
        "training.accumulation: 4",
        "training.remat: full",
        "training.remat: offload",
    ]
    assert tried[6] == "training.attention: splash, training.accumulation: 4, training.remat: offload"
    assert all("mesh: " in each for each in tried[7:])


def test_every_change_keeps_batch_model_and_slices_and_is_another_job() -> None:
    spec = job(gather_weights="each-step")
    found = [change.spec for change in changes(spec)]
    assert len(found) == len({each.model_dump_json() for each in [*found, spec]}) - 1
    assert {(each.training.global_batch, each.model, each.slices) for each in found} == {
        (spec.training.global_batch, spec.model, spec.slices)
    }


def test_no_mesh_that_is_tried_splits_the_training_state_less() -> None:
    spec = job(MeshSpec(replica=4, fsdp=4, tensor=2))
    meshes = [change.spec.mesh for change in changes(spec) if "mesh" in change.words]
    assert meshes
    assert all(mesh.fsdp * mesh.tensor * mesh.stage >= 8 for mesh in meshes)


def test_what_fits_comes_first_and_of_that_the_fastest() -> None:
    answers = {
        "training.accumulation: 2": Outcome(True, 20.0, 3.0),
        "training.remat: full": Outcome(True, 25.0, 2.0),
    }
    found = remedies(job(), lambda _: 1.0, 31.0, lambda change: answers.get(change.words, UNFIT))
    assert [(each.change, each.fits) for each in found] == [
        ("training.remat: full", True),
        ("training.accumulation: 2", True),
    ]


@given(fitting=st.sets(st.integers(0, 30)))
def test_no_more_is_compiled_than_it_takes(fitting: set[int]) -> None:
    asked: list[str] = []

    def compiled(change: Change) -> Outcome:
        asked.append(change.words)
        return Outcome(True, 20.0, 1.0) if len(asked) - 1 in fitting else UNFIT

    found = remedies(job(), lambda _: 1.0, 31.0, compiled)
    assert len(asked) == len(found) <= TRIES
    assert sum(each.fits for each in found) <= ENOUGH
    if sum(each.fits for each in found) < ENOUGH:
        assert len(asked) == min(TRIES, len(words(job())))


def test_what_cannot_fit_by_its_training_state_is_not_compiled() -> None:
    def unexpected(change: Change) -> Outcome:
        pytest.fail(f"{change.words} was compiled")

    assert remedies(job(), lambda _: 31.0, 31.0, unexpected) == ()

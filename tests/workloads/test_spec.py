from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.workloads.jobs import small_job
from workloads.spec import JobSpec, TokenFileSpec, load_preset, preset_names


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_loads(name: str) -> None:
    assert load_preset(name).training.steps > 0


def test_an_unknown_preset_names_those_there_are() -> None:
    with pytest.raises(ValueError, match="'tinny' is not a preset; choose one of .*tiny"):
        load_preset("tinny")


def test_a_job_survives_the_pods_environment() -> None:
    job = small_job(Path("somewhere"))
    assert JobSpec.model_validate_json(job.model_dump_json()) == job


def test_a_job_on_a_token_folder_survives_it_too() -> None:
    data = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)
    job = small_job(Path("somewhere")).model_copy(update={"data": data})
    assert JobSpec.model_validate_json(job.model_dump_json()).data == data


def test_all_faults_of_a_mesh_are_reported_at_once() -> None:
    with pytest.raises(ValidationError) as caught:
        small_job(Path("somewhere"), replica=1, fsdp=3)
    message = str(caught.value)
    assert "training.global_batch must be a multiple of the 3 devices" in message
    assert "model.embed_dim must be a multiple of mesh.fsdp (3), got 64" in message

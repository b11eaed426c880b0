from pathlib import Path

import jax.numpy as jnp
import pytest
from etils import epath
from pydantic_core import PydanticSerializationError

from tests.workloads.jobs import small_job
from workloads.training.parameter_folder import About, require_new, write


def test_a_folder_that_cannot_be_finished_is_not_in_the_way_of_the_next_attempt(tmp_path: Path) -> None:
    folder = epath.Path(tmp_path / "parameters")
    model = small_job(tmp_path).model
    not_json = About(step=0, model=model, sequence_length=64, fingerprints={}, manifest={"file": object()})
    with pytest.raises(PydanticSerializationError):
        write(folder, {"embedding": jnp.ones((2, 2))}, not_json)
    require_new(folder)

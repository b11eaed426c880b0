"""Every preset compiles for slices that it is meant for, and fits them."""

from typing import Any

import pytest

from infra.submission import slice_spec
from infra.tpu import resolve
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight.preflight import compile_step
from workloads.spec import JobSpec, MeshSpec, load_preset, preset_names

TOPOLOGIES = {"llama-3.1-70b": "16x16", "mixtral-8x7b": "16x16"}
"""Of two v6e slices; 4x4 for all others."""


def job(name: str) -> JobSpec:
    preset = load_preset(name)
    slices = slice_spec(resolve("v6e", TOPOLOGIES.get(name, "4x4")), 2)
    sections: dict[str, Any] = {"model": preset.model, "optimizer": preset.optimizer, "training": preset.training}
    mesh = MeshSpec(replica=2, fsdp=slices.devices_per_slice)
    return JobSpec.model_validate(v6e_job().model_dump() | sections | {"slices": slices, "mesh": mesh})


@pytest.mark.usefixtures("compiled_quickly")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "tiny" else pytest.mark.complete) for name in preset_names()]
)
@pytest.mark.costs(cpu_seconds=20)
def test_it_compiles_and_fits(name: str) -> None:
    compilation = compile_step(job(name))
    assert compilation.excess is None
    assert compilation.complaints == ()

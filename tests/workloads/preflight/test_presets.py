"""Every preset compiles for its intended slices, and fits them."""

from typing import Any

import pytest

from infra.submission import slice_spec
from infra.tpu import resolve
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight.preflight import compile_step
from workloads.spec import JobSpec, LoraSpec, MeshSpec, load_preset, preset_names

TOPOLOGIES = {"llama-3.1-70b": "16x16", "mixtral-8x7b": "16x16"}
"""Topologies of two v6e slices. All other presets have 4x4."""


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


@pytest.mark.complete
@pytest.mark.usefixtures("compiled_quickly")
def test_llama_8b_with_adapters_fits_and_needs_less_memory_than_without() -> None:
    whole = job("llama-3.1-8b")
    training = whole.training.model_copy(update={"lora": LoraSpec(rank=16, alpha=32)})
    adapted = JobSpec.model_validate(whole.model_dump() | {"training": training, "initial_weights": "gs://bucket/8b"})
    found = [compile_step(spec) for spec in (adapted, whole)]
    assert [compilation.complaints for compilation in found] == [(), ()]
    memory = [compilation.memory for compilation in found]
    assert memory[0]
    assert memory[1]
    # These are 2 bytes of each weight and 12 of each adapter, instead of 12 of each weight.
    assert memory[0].arguments_gib < 0.2 * memory[1].arguments_gib
    assert memory[0].peak_gib < memory[1].peak_gib - 3

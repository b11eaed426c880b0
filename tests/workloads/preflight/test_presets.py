"""Every preset compiles for its intended slices, and fits them."""

from typing import Any

import pytest

from tests.workloads.jobs import changed, validated
from tests.workloads.preflight.jobs import slices_of, v6e_job
from workloads.preflight.preflight import compile_step
from workloads.spec import JobSpec, LoraSpec, MeshSpec, load_preset, preset_names

TOPOLOGIES = {"llama-3.1-70b": "16x16", "mixtral-8x7b": "16x16"}
"""Topologies of two v6e slices. All other presets have 4x4."""


def job(name: str) -> JobSpec:
    preset = load_preset(name)
    slices = slices_of("v6e", TOPOLOGIES.get(name, "4x4"), 2)
    sections: dict[str, Any] = {"model": preset.model, "optimizer": preset.optimizer, "training": preset.training}
    return validated(v6e_job(), slices=slices, mesh=MeshSpec(replica=2, fsdp=slices.devices_per_slice), **sections)


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
    lora = {"lora": LoraSpec(rank=16, alpha=32)}
    adapted = validated(changed(whole, training=lora), initial_weights="gs://bucket/8b")
    found = [compile_step(spec) for spec in (adapted, whole)]
    assert [compilation.complaints for compilation in found] == [(), ()]
    less, more = (compilation.memory for compilation in found)
    assert less
    assert more
    # These are 2 bytes of each weight and 12 of each adapter, instead of 12 of each weight.
    assert less.arguments_gib < 0.2 * more.arguments_gib
    assert less.peak_gib < more.peak_gib - 3

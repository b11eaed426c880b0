"""The table of compiler options in libtpu: it accepts every row, and gathers change as the rows say."""

from typing import Any

import pytest

from tests.workloads.preflight.jobs import slices_of, v6e_job
from tests.workloads.preflight.scan import lowered_scan
from workloads.preflight.estimate import account
from workloads.preflight.result import preflight
from workloads.preflight.topology import check_arguments, describe_devices
from workloads.preflight.traffic import Kind
from workloads.spec import CompilerSpec, JobSpec, MeshSpec, SliceSpec
from workloads.spec.compiler import VMEM, Value
from workloads.training.mesh import build_mesh


@pytest.fixture(autouse=True)
def _has_a_compiler() -> None:
    pytest.importorskip("libtpu")


def gathering_text(slices: SliceSpec, options: dict[str, Value]) -> str:
    """Return the program that gathers the weights of a layer before it runs, compiled as quickly as possible."""
    spec = MeshSpec(replica=slices.count, fsdp=slices.devices_per_slice)
    mesh = build_mesh(spec, slices, describe_devices(slices, {}))
    lowered = lowered_scan(mesh, layers=4, embed=4096, tokens=512)
    return lowered.compile({"optimization_level": "O0"} | options).as_text() or ""


def with_compiler(**changes: Any) -> JobSpec:
    return v6e_job().model_copy(update={"compiler": CompilerSpec(**changes)})


@pytest.mark.costs(cpu_seconds=10)
@pytest.mark.parametrize(
    ("generation", "topology", "compile"),
    [
        ("v4", "2x2x2", "full"),
        ("v5e", "4x4", "full"),
        ("v5p", "2x2x2", "full"),
        ("v6e", "4x4", "full"),
        ("v6e", "4x4", "quick"),
        ("7x", "2x2x2", "full"),
    ],
)
def test_libtpu_takes_every_option_of_a_generation(generation: str, topology: str, compile: Any) -> None:
    slices = slices_of(generation, topology)
    options = CompilerSpec(compile=compile).options_for(slices)
    assert account(gathering_text(slices, options)).matmul_flops


@pytest.mark.complete
@pytest.mark.parametrize(
    ("generation", "topology", "before"),
    [("v5p", "4x4x4", Kind.ALL_REDUCE), ("v6e", "4x4", Kind.ALL_GATHER), ("v6e", "8x8", Kind.ALL_GATHER)],
)
def test_weights_are_gathered_while_the_program_computes(generation: str, topology: str, before: Kind) -> None:
    slices = slices_of(generation, topology)
    options = CompilerSpec().options_for(slices)
    blocking = account(gathering_text(slices, {VMEM: options[VMEM]})).collectives
    background = account(gathering_text(slices, options)).collectives
    assert {(each.kind, each.blocking) for each in blocking} == {(before, True)}
    assert {(each.kind, each.blocking) for each in background} == {(Kind.ALL_GATHER, False)}


def test_libtpu_starts_with_every_argument_of_the_table() -> None:
    check_arguments(with_compiler(libtpu_args={"megascale_debug_port": 8081}))


@pytest.mark.costs(cpu_seconds=10)
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"libtpu_args": {"megascale_no_such": 1}}, "Unknown command line flag 'megascale_no_such'"),
        ({"compiler_options": {"xla_tpu_no_such": 1}}, "No such compile option: 'xla_tpu_no_such'"),
    ],
)
def test_what_libtpu_or_the_compiler_does_not_know_is_refused_in_its_words(changes: dict[str, Any], words: str) -> None:
    assert words in (preflight(with_compiler(**changes), lambda compiling: None, fill_cache=False).unsupported or "")

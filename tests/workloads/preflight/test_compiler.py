"""The table of compiler options in libtpu: it accepts every row, and gathers change as the rows say."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from infra.submission import slice_spec
from infra.tpu import resolve
from tests.workloads.preflight.jobs import v6e_job
from workloads.preflight.estimate import account
from workloads.preflight.result import preflight
from workloads.preflight.topology import check_arguments, describe_devices
from workloads.preflight.traffic import Kind
from workloads.spec import CompilerSpec, JobSpec, MeshSpec, SliceSpec
from workloads.spec.compiler import VMEM, Value
from workloads.training.mesh import FSDP, build_mesh

LAYERS, EMBED = 4, 1024


@pytest.fixture(autouse=True)
def _has_a_compiler() -> None:
    pytest.importorskip("libtpu")


def gathering_text(slices: SliceSpec, options: dict[str, Value]) -> str:
    """Return the program that gathers the weights of a layer before it runs, compiled as quickly as possible."""
    spec = MeshSpec(replica=slices.count, fsdp=slices.devices_per_slice)
    mesh = build_mesh(spec, slices, describe_devices(slices, {}))

    def step(x: jax.Array, weights: jax.Array) -> jax.Array:
        def layer(x: jax.Array, shard: jax.Array) -> tuple[jax.Array, None]:
            return x @ jax.lax.all_gather(shard, FSDP, tiled=True), None

        return jax.lax.scan(layer, x, weights)[0]

    def array(shape: tuple[int, ...], split: PartitionSpec) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NamedSharding(mesh, split))

    rows, shards = PartitionSpec(FSDP), PartitionSpec(None, FSDP)
    over_mesh = jax.shard_map(step, mesh=mesh, in_specs=(rows, shards), out_specs=rows, check_vma=False)
    x, weights = array((spec.fsdp * 512, EMBED), rows), array((LAYERS, EMBED, EMBED), shards)
    return jax.jit(over_mesh).lower(x, weights).compile({"optimization_level": "O0"} | options).as_text() or ""


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
    slices = slice_spec(resolve(generation, topology), 1)
    options = CompilerSpec(compile=compile).options_for(slices)
    assert account(gathering_text(slices, options)).matmul_flops


@pytest.mark.complete
@pytest.mark.parametrize(
    ("generation", "topology", "before"), [("v5p", "4x4x4", Kind.ALL_REDUCE), ("v6e", "4x4", Kind.ALL_GATHER)]
)
def test_weights_are_gathered_while_the_program_computes(generation: str, topology: str, before: Kind) -> None:
    slices = slice_spec(resolve(generation, topology), 1)
    options = CompilerSpec().options_for(slices)
    blocking = account(gathering_text(slices, {VMEM: options[VMEM]})).collectives
    background = account(gathering_text(slices, options)).collectives
    assert {(each.kind, each.blocking) for each in blocking} == {(before, True)}
    assert {(each.kind, each.blocking) for each in background} == {(Kind.ALL_GATHER, False)}


def test_libtpu_starts_with_every_argument_of_the_table() -> None:
    check_arguments(with_compiler(libtpu_args={"megascale_debug_port": 8081}))


def test_an_argument_that_libtpu_does_not_know_is_refused_in_its_words() -> None:
    found = preflight(with_compiler(libtpu_args={"megascale_no_such": 1}), lambda compiling: None, fill_cache=False)
    assert found.unsupported
    assert "Unknown command line flag 'megascale_no_such'" in found.unsupported


@pytest.mark.costs(cpu_seconds=10)
def test_an_option_that_the_compiler_does_not_know_is_refused_in_its_words() -> None:
    found = preflight(with_compiler(compiler_options={"xla_tpu_no_such": 1}), lambda compiling: None, fill_cache=False)
    assert found.unsupported
    assert "No such compile option: 'xla_tpu_no_such'" in found.unsupported

"""The trainer's compiled step moves no more between TPUs than its weights need, and those of presets fit."""

from typing import Any

import jax
import pytest

from tests.workloads.jobs import changed, validated
from tests.workloads.preflight.jobs import slices_of, v6e_job
from workloads.preflight.estimate import Account, account
from workloads.preflight.result import compile_step
from workloads.preflight.traffic import Kind
from workloads.spec import ExpertsSpec, JobSpec, LoraSpec, MeshSpec, ModelSpec, WindowSpec, load_preset, preset_names
from workloads.spec.model import adapter_parameters
from workloads.training.model import initial_parameters

MEGABYTE = 1_000_000
SMALL = ModelSpec(
    vocab_size=2048, embed_dim=512, mlp_dim=1024, layers=2, query_heads=16, kv_heads=4, head_dim=64, norm_epsilon=1e-5
)
FSDP_16 = MeshSpec(replica=2, fsdp=16)

pytestmark = pytest.mark.usefixtures("compiled_quickly")


def job(model: ModelSpec, mesh: MeshSpec, **training: Any) -> JobSpec:
    sizes = {"global_batch": 64, "sequence_length": 1024, "compute_dtype": "bfloat16"}
    return validated(changed(v6e_job(), training=sizes | training), model=model, mesh=mesh)


def compiled(spec: JobSpec) -> Account:
    compilation = compile_step(spec)
    assert compilation.complaints == ()
    return account(compilation.text)


def matrix_elements(model: ModelSpec) -> int:
    shapes = jax.eval_shape(lambda: initial_parameters(model, 0))
    return sum(leaf.size for path, leaf in jax.tree.leaves_with_path(shapes) if "scale" not in str(path[-1]))


def assert_gradients_cross_slices_once(spec: JobSpec, done: Account) -> None:
    bfloat16_shards = 2 * matrix_elements(spec.model) / (spec.mesh.fsdp * spec.mesh.tensor)
    sent = done.dcn["ALL_REDUCE"].result_bytes
    # In addition to the matrices, there are norm scales, loss and gradient norm, in float32 on every device.
    assert bfloat16_shards <= sent < 1.02 * bfloat16_shards + 0.1 * MEGABYTE


@pytest.mark.complete
@pytest.mark.parametrize("attention", ["splash", "fused"])
def test_only_the_gradients_of_adapters_leave_a_device(attention: str) -> None:
    # A device's part of an adapter fills whole tiles, as in real models: the padding of smaller ones is sent too.
    sizes = {"embed_dim": 4096, "mlp_dim": 8192, "query_heads": 32, "kv_heads": 16, "head_dim": 128}
    wide, lora = SMALL.model_copy(update=sizes), LoraSpec(rank=16, alpha=16)
    plain = job(wide, FSDP_16, attention=attention, accumulation=2)
    done = compiled(validated(changed(plain, training={"lora": lora}), initial_weights="unused"))
    adapters = 2 * adapter_parameters(wide, lora)
    assert done.ici[Kind.REDUCE_SCATTER].result_bytes == pytest.approx(adapters / 16, rel=1e-3)
    assert done.dcn["ALL_REDUCE"].result_bytes == pytest.approx(adapters / 16, abs=1000)
    assert largest_all_reduce(done) < 1000


def largest_all_reduce(done: Account) -> int:
    found = [each.result_bytes for each in done.collectives if each.kind is Kind.ALL_REDUCE]
    return max(found, default=0)


@pytest.mark.complete
def test_llama_s_gradients_are_scattered_within_a_slice_and_cross_slices_once() -> None:
    model = load_preset("llama-3.2-1b").model.model_copy(update={"layers": 2})
    spec = job(model, FSDP_16, global_batch=128, sequence_length=8192)
    done = compiled(spec)
    assert_gradients_cross_slices_once(spec, done)
    assert largest_all_reduce(done) < MEGABYTE
    # These are each layer's matrices and, for lookup and loss, the table twice.
    table = model.vocab_size * model.embed_dim
    scattered = done.ici[Kind.REDUCE_SCATTER].result_bytes
    assert scattered == pytest.approx(2 * (matrix_elements(model) + table) / 16, rel=1e-3)


GEMMA_PARTS = ("query_key_norm", "output_norms", "norm_scales_from_one", "scaled_embedding")
LAYOUTS: dict[str, tuple[dict[str, Any], MeshSpec, dict[str, Any]]] = {
    "splash": ({}, FSDP_16, {}),
    "fused": ({}, FSDP_16, {"attention": "fused"}),
    "accumulation 2": ({}, FSDP_16, {"accumulation": 2}),
    "accumulation 2, weights gathered once": ({}, FSDP_16, {"accumulation": 2, "gather_weights": "each-step"}),
    "tensor 4, documents": ({}, MeshSpec(replica=2, fsdp=4, tensor=4), {"document_end": 1, "ignored_token": 0}),
    "experts": ({"experts": ExpertsSpec(count=4, per_token=2, balance_weight=0.01)}, FSDP_16, {}),
    "offload": ({}, FSDP_16, {"remat": "offload"}),
    "qwen3": ({"query_key_norm": True}, FSDP_16, {}),
    "qwen3, fused": ({"query_key_norm": True}, FSDP_16, {"attention": "fused"}),
    "gemma": (
        dict.fromkeys(GEMMA_PARTS, True)
        | {"activation": "gelu", "attention_soft_cap": 50.0, "logit_soft_cap": 30.0, "layers": 4}
        | {"windows": WindowSpec(size=256, pattern=("local", "local", "global"), rope_base=1e4)},
        FSDP_16,
        {"sequence_length": 4096},
    ),
}
"""Changes of the small model, mesh and changes of the training."""


def job_of(layout: str) -> JobSpec:
    parts, mesh, training = LAYOUTS[layout]
    return job(SMALL.model_copy(update=parts), mesh, **training)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "splash" else pytest.mark.complete) for name in LAYOUTS]
)
@pytest.mark.costs(cpu_seconds=40)
def test_every_layout_compiles_for_tpus_and_crosses_slices_once(name: str) -> None:
    spec = job_of(name)
    done = compiled(spec)
    assert_gradients_cross_slices_once(spec, done)
    assert largest_all_reduce(done) < MEGABYTE


@pytest.mark.complete
def test_a_window_leaves_fewer_flops_to_the_attention_kernels_of_local_layers() -> None:
    flops: dict[bool, int] = {True: 0, False: 0}
    for kernel in compiled(job_of("gemma")).kernels:
        assert kernel.flops
        flops["keys_2048" in kernel.op_name] += kernel.times * kernel.flops
    # Three layers are local. Blocks of 1024 queries use 2048 of the 4096 keys, as many as the causal mask needs.
    assert flops[True] == 3 * flops[False]


@pytest.mark.complete
def test_products_of_experts_are_kernels_of_grouped_products() -> None:
    rows = 64 // 32 * 1024 * 2
    product = 2 * rows * SMALL.embed_dim * SMALL.mlp_dim
    # Gate, up and down of each layer are computed and have two gradients. Only gate and up are computed again.
    assert compiled(job_of("experts")).grouped_flops == SMALL.layers * (3 + 6 + 2) * product


@pytest.mark.complete
def test_between_stages_on_two_slices_only_activations_and_the_tables_cross() -> None:
    spec = job(SMALL, MeshSpec(replica=1, stage=2, fsdp=16), accumulation=4, gather_weights="each-step")
    done = compiled(spec)
    microbatch = spec.training.global_batch // 16 // 4 * spec.training.sequence_length * SMALL.embed_dim * 2
    ticks = 4 + 2 - 1
    handed_on = done.dcn["ONE_TO_ONE"].result_bytes
    assert handed_on == pytest.approx(2 * ticks * microbatch, rel=0.5)
    table = 2 * SMALL.vocab_size * SMALL.embed_dim / 16
    assert done.dcn["ALL_REDUCE"].result_bytes < 1.1 * table + 0.1 * MEGABYTE


TOPOLOGIES = {"llama-3.1-70b": "16x16", "mixtral-8x7b": "16x16", "qwen3-30b-a3b": "8x8"}
"""Topologies of two v6e slices. All other presets have 4x4."""


def preset_job(name: str) -> JobSpec:
    preset = load_preset(name)
    slices = slices_of("v6e", TOPOLOGIES.get(name, "4x4"), 2)
    sections: dict[str, Any] = {"model": preset.model, "optimizer": preset.optimizer, "training": preset.training}
    return validated(v6e_job(), slices=slices, mesh=MeshSpec(replica=2, fsdp=slices.devices_per_slice), **sections)


@pytest.mark.complete
@pytest.mark.parametrize("name", preset_names())
def test_a_preset_compiles_for_its_slices_and_fits_them(name: str) -> None:
    compilation = compile_step(preset_job(name))
    assert compilation.excess is None
    assert compilation.complaints == ()


@pytest.mark.complete
def test_what_is_kept_on_the_host_takes_no_memory_of_a_device() -> None:
    model = SMALL.model_copy(update={"layers": 16})
    jobs = (job(model, FSDP_16, global_batch=128, sequence_length=4096, remat=remat) for remat in ("offload", "full"))
    less, more = (compile_step(spec).memory for spec in jobs)
    assert less
    assert more
    assert less.peak_gib < more.peak_gib


@pytest.mark.complete
def test_llama_8b_with_adapters_fits_and_needs_less_memory_than_without() -> None:
    whole = preset_job("llama-3.1-8b")
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

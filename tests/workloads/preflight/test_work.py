import pytest

from tests.workloads.preflight.texts import SCAN, module
from workloads.preflight.hlo import Module, parse
from workloads.preflight.loops import schedule
from workloads.preflight.work import Kernel, kernels, operations, unpriced

KERNEL = 'custom_call_target="tpu_custom_call"'


def only_kernel(*instructions: str) -> Kernel:
    parsed = module(*instructions)
    (kernel,) = kernels(parsed, schedule(parsed))
    return kernel


def matmul_flops(parsed: Module) -> int:
    return sum(each.times * each.matmul_flops for each in operations(parsed, schedule(parsed)))


def test_a_window_in_the_scope_of_a_splash_kernel_replaces_the_causal_half() -> None:
    def flops(scope: str) -> int | None:
        name = f'metadata={{op_name="jit(mix)/{scope}vmap(x)/splash_mqa_fwd_residuals/pallas_call"}}'
        heads = [f"%{part} = bf16[2,4,4096,128]{{3,2,1,0}} parameter({place})" for place, part in enumerate("qkv")]
        call = f"%call = bf16[2,4,4096,128]{{3,2,1,0}} custom-call(%q, %k, %v), {KERNEL}, {name}"
        return only_kernel(*heads, call).flops

    assert flops("") == 2 * 2 * 4 * 4096 * 4096 * 128
    assert flops("keys_1024/") == 2 * 2 * 2 * 4 * 4096 * 1024 * 128


def test_cycles_of_a_scan_are_counted_for_each_layer_and_by_source() -> None:
    parsed = parse(SCAN)
    found = {each.name: each for each in operations(parsed, schedule(parsed))}
    matmul = found["fusion.11"]
    assert (matmul.times, matmul.cycles, matmul.source) == (5, 3072, "step.layer:10")
    assert sum(each.times * each.cycles for each in found.values()) == 69776


@pytest.mark.parametrize(
    ("left", "right", "result", "window", "labels", "flops"),
    [
        ("8,16", "16,32", "8,32", "", "bf_io->bf", 2 * 8 * 16 * 32),
        ("4,8,16", "4,16,32", "4,8,32", "size=4 stride=3 lhs_dilate=4", "0bf_0io->0bf", 4 * 2 * 8 * 16 * 32),
        ("8,4,16", "4,16,32", "8,1,32", "size=4", "b0f_0io->b0f", 2 * 8 * 64 * 32),
        ("8,1,16", "4,16,32", "8,4,32", "size=4 pad=3_3 rhs_reversal=1", "b0f_0io->b0f", 2 * 8 * 16 * 128),
    ],
    ids=[
        "8 x 16 by 16 x 32",
        "a batch of 4 matmuls as TPU programs write it",
        "two contracted dimensions, 4 and 16",
        "a free dimension of the right side as a padded and reversed window",
    ],
)
def test_flops_of_a_matmul_written_as_a_convolution(
    left: str, right: str, result: str, window: str, labels: str, flops: int
) -> None:
    attributes = (f"window={{{window}}}, " if window else "") + f"dim_labels={labels}"
    parsed = module(
        f"%left = f32[{left}] parameter(0)",
        f"%right = f32[{right}] parameter(1)",
        f"%matmul = f32[{result}] convolution(%left, %right), {attributes}",
    )
    assert matmul_flops(parsed) == flops


def test_a_kernel_s_own_estimate_is_taken_and_none_is_guessed() -> None:
    config = 'backend_config={"custom_call_config":{"cost_estimate":{"transcendentals":"3","flops":"12345"}}}'
    without = f"%k = f32[2] custom-call(%a), {KERNEL}"
    kernel = only_kernel("%a = f32[2] parameter(0)", f"{without}, {config}")
    assert (kernel.flops, kernel.basis) == (12345, "the kernel's cost estimate")
    assert only_kernel("%a = f32[2] parameter(0)", without).flops is None


@pytest.mark.parametrize(("call", "results", "matmuls"), [("fwd", 1, 2), ("dkv", 2, 4), ("dkv", 3, 5), ("dq", 1, 3)])
def test_splash_attention_states_none_so_half_the_square_counts(call: str, results: int, matmuls: int) -> None:
    queries, keys = "%q = bf16[2,4,1024,128] parameter(0)", "%k = bf16[2,4,2048,128] parameter(1)"
    outputs = ", ".join(["bf16[2,4,1024,128]"] * results)
    name = f'metadata={{op_name="jit(f)/splash_mha_{call}_no_residuals/pallas_call"}}'
    kernel = only_kernel(queries, keys, f"%kernel = ({outputs}) custom-call(%q, %k), {KERNEL}, {name}")
    assert kernel.flops == matmuls * 2 * (2 * 4 * 1024 * 2048 * 128) // 2


def test_splash_attention_of_one_sequence_and_one_key_head_has_keys_without_further_dimensions() -> None:
    name = 'metadata={op_name="jit(mix)/vmap(x)/splash_mqa_fwd_residuals/pallas_call"}'
    query, key = "%q = bf16[4,4096,128] parameter(0)", "%k = bf16[4096,128] parameter(1)"
    kernel = only_kernel(query, key, f"%call = bf16[4,4096,128] custom-call(%q, %k, %k), {KERNEL}, {name}")
    assert kernel.flops == 2 * 4 * 4096 * 4096 * 128


def test_a_large_scatter_without_an_estimate_is_named() -> None:
    parsed = module(
        "%a = f32[1024,1024] parameter(0)",
        "%small = f32[8] gather(%a, %a)",
        "%large = f32[1024,1024] scatter(%a, %a, %a)",
    )
    assert [each.name for each in unpriced(parsed, schedule(parsed))] == ["large"]

import pytest

from tests.workloads.jobs import changed
from tests.workloads.preflight.jobs import v6e_job
from tests.workloads.preflight.texts import SCAN
from workloads.preflight.estimate import account, estimate
from workloads.spec.chips import chip_of
from workloads.training.flops import flops_per_token


def test_seconds_are_cycles_by_the_clock_and_bytes_by_the_links() -> None:
    found = estimate(v6e_job(), account(SCAN))
    assert found.compute_seconds == pytest.approx(69776 / 1.75e9, rel=1e-3)
    assert found.ici_seconds == pytest.approx(5 * 2 * 1024 * 1024 * 15 / 16 / 180e9)
    assert found.dcn_seconds == pytest.approx(5 * 2 * 1024 * 1024 / 16 / 12.5e9)
    assert {step.seconds for step in found.steps} == {found.compute_seconds + found.ici_seconds}


def test_a_step_takes_as_much_longer_as_it_waits_for_other_slices() -> None:
    [done] = (line for line in SCAN.splitlines(keepends=True) if line.startswith("  %recv-done"))
    before, loop, after = SCAN.replace(done, "").partition("  %copy.15 =")
    hidden, waits = (estimate(v6e_job(), account(text)) for text in (SCAN, before + done + loop + after))
    assert hidden.dcn_exposed_seconds == 0
    assert waits.dcn_exposed_seconds == pytest.approx(waits.dcn_seconds)
    longer = [late.seconds - early.seconds for late, early in zip(waits.steps, hidden.steps, strict=True)]
    assert longer == pytest.approx([waits.dcn_seconds] * 3)


def test_a_sum_over_more_slices_takes_longer() -> None:
    many, done = changed(v6e_job(), slices={"count": 64}), account(SCAN)
    assert estimate(many, done).dcn_seconds == pytest.approx(2 * 63 / 64 * estimate(v6e_job(), done).dcn_seconds)


def _with_kernel(op_name: str) -> str:
    """Return the program with one more kernel of 918 GFLOP, which take a millisecond at the peak of v6e."""
    kernel = (
        f'  %kernel = f32[] custom-call(), custom_call_target="tpu_custom_call", metadata={{op_name="{op_name}"}},'
        ' backend_config={"cost_estimate":{"flops":"918000000000"}}\n  ROOT'
    )
    before, root, after = SCAN.rpartition("  ROOT")
    assert root
    return before + kernel + after


def _added_seconds(op_name: str) -> list[float]:
    without, found = (estimate(v6e_job(), account(text)) for text in (SCAN, _with_kernel(op_name)))
    assert [step.kernel_efficiency for step in found.steps] == [0.25, 0.35, 0.5]
    return [late.seconds - early.seconds for late, early in zip(found.steps, without.steps, strict=True)]


def test_attention_kernels_take_longer_the_less_efficient_they_are_assumed_to_be() -> None:
    assert _added_seconds("jit(step)/splash_mha_fwd") == pytest.approx([0.004, 0.001 / 0.35, 0.002])


@pytest.mark.parametrize(
    "op_name",
    [
        "ragged-dot-none",
        "jit(step)/jvp()/ragged_dot_general/ragged-dot-none",
        "jit(step)/jvp(jit(gmm))/pallas_call",
        "jit(step)/transpose(jvp(jit(tgmm)))/pallas_call",
    ],
)
def test_grouped_products_have_their_own_efficiency(op_name: str) -> None:
    efficiency = chip_of(v6e_job().slices).grouped_efficiency
    assert _added_seconds(op_name) == pytest.approx([0.001 / efficiency] * 3)


def test_utilisation_and_rate_follow_from_the_seconds() -> None:
    spec = v6e_job()
    step = estimate(spec, account(SCAN)).steps[0]
    tokens = spec.training.global_batch * spec.training.sequence_length
    assert step.tokens_per_second_per_chip == pytest.approx(tokens / step.seconds / 32)
    model_flops = flops_per_token(spec.model, spec.training.sequence_length) * tokens
    assert step.mfu == pytest.approx(model_flops / step.seconds / (32 * 918e12))

from pathlib import Path

import pytest

from tests.workloads.jobs import small_job
from workloads.spec import ExpertsSpec, LoraSpec, WindowSpec
from workloads.spec.model import matrix_parameters, trained_parameters
from workloads.spec.training import LoraTarget
from workloads.training.flops import flops_per_token, utilisation

JOB = small_job(Path("somewhere"))
MODEL = JOB.model


@pytest.mark.parametrize("experts", [None, ExpertsSpec(count=4, per_token=4, balance_weight=0)])
@pytest.mark.parametrize("targets", [("query_key_value", "out", "gate", "up", "down"), ("query_key_value", "down")])
def test_frozen_weights_have_no_gradient_of_their_own(
    experts: ExpertsSpec | None, targets: tuple[LoraTarget, ...]
) -> None:
    model = MODEL.model_copy(update={"experts": experts})
    lora = LoraSpec(rank=4, alpha=8, targets=targets)
    spared = flops_per_token(model, 64) - flops_per_token(model, 64, lora)
    assert spared == 2 * matrix_parameters(model) - 6 * trained_parameters(model, lora)


def test_a_window_spares_the_scores_outside_of_it() -> None:
    full = MODEL.model_copy(update={"layers": 5})
    windows = WindowSpec(size=16, pattern=("local", "local", "global"))
    windowed = full.model_copy(update={"windows": windows})
    length = 64
    pairs = sum(min(place + 1, 16) for place in range(length))
    all_pairs = sum(place + 1 for place in range(length))
    attention = 3 * 4 * full.query_heads * full.head_dim / length
    saved = flops_per_token(full, length) - flops_per_token(windowed, length)
    # Layers 1, 2, 4 and 5 are local. Half of each position's own score counts, as without windows.
    assert saved == pytest.approx(4 * attention * (all_pairs - length / 2 - (pairs - 16 / 2)), rel=1e-9)
    assert flops_per_token(windowed, 8) == flops_per_token(full, 8)


def test_utilisation_of_a_published_size() -> None:
    # 7B as in https://arxiv.org/abs/2307.09288: 6.6 G weights in matrices, 32 layers, 4096 wide.
    model = MODEL.model_copy(
        update={
            "vocab_size": 32000, "embed_dim": 4096, "mlp_dim": 11008,
            "layers": 32, "query_heads": 32, "kv_heads": 32, "head_dim": 128,
        }
    )  # fmt: skip
    flops = flops_per_token(model, 4096)
    assert flops == pytest.approx(6 * 6.607e9 + 6 * 32 * 4096 * 4096, rel=1e-3)
    rated = JOB.slices.model_copy(update={"peak_bf16_tflops_per_chip": 918.0})
    # These are 8 chips of 918 TFLOP/s that all multiply all the time.
    assert utilisation(8 * 918e12 / flops, flops, rated) == pytest.approx(1)
    assert utilisation(1000, flops, JOB.slices) is None

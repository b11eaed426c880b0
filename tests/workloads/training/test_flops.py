from pathlib import Path

import jax
import pytest

from tests.workloads.jobs import small_job
from workloads.training.flops import flops_per_token, matrix_parameters, utilisation
from workloads.training.model import initial_parameters


@pytest.mark.parametrize("tied", [True, False])
def test_the_matrices_counted_are_those_of_the_model(tied: bool) -> None:
    model = small_job(Path("somewhere")).model.model_copy(update={"tied_embedding": tied})
    shapes = jax.eval_shape(lambda: initial_parameters(model, 0))
    matrices = sum(leaf.size for leaf in jax.tree.leaves(shapes["blocks"]) if leaf.ndim == 3) + shapes["embedding"].size
    assert matrix_parameters(model) == matrices


def test_utilisation_of_a_published_size() -> None:
    # 7B as in https://arxiv.org/abs/2307.09288: 6.6 G weights in matrices, 32 layers, 4096 wide.
    model = small_job(Path("somewhere")).model.model_copy(
        update={
            "vocab_size": 32000, "embed_dim": 4096, "mlp_dim": 11008,
            "layers": 32, "query_heads": 32, "kv_heads": 32, "head_dim": 128,
        }
    )  # fmt: skip
    flops = flops_per_token(model, 4096)
    assert flops == pytest.approx(6 * 6.607e9 + 6 * 32 * 4096 * 4096, rel=1e-3)
    slices = small_job(Path("somewhere")).slices
    rated = slices.model_copy(update={"peak_bf16_tflops_per_chip": 918.0})
    # 8 chips of 918 TFLOP/s that all multiply all the time.
    assert utilisation(8 * 918e12 / flops, flops, rated) == pytest.approx(1)
    assert utilisation(1000, flops, slices) is None

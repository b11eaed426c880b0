"""The same job on every kind of mesh: losses and gradients are those of one device, up to rounding."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.workloads.training.layouts import LAYOUTS, STAGES, TENSOR, UNEVEN, UNEVEN_STAGES, job_on
from tests.workloads.training.running import batches_of, program_of
from workloads.spec import ExpertsSpec, JobSpec, WindowSpec

STEPS = 20
EXPERTS = ExpertsSpec(count=4, per_token=2, balance_weight=0.01)
WINDOWS = WindowSpec(size=9, pattern=("local", "local", "global"), rope_base=100.0)
PARTS: dict[str, dict[str, Any]] = {
    "experts": {"experts": EXPERTS},
    "qwen3": {"query_key_norm": True, "tied_embedding": False},
    "gemma": {
        "layers": 5,
        "activation": "gelu",
        "query_key_norm": True,
        "output_norms": True,
        "norm_scales_from_one": True,
        "scaled_embedding": True,
        "score_dim": 20,
        "attention_soft_cap": 5.0,
        "logit_soft_cap": 3.0,
        "windows": WINDOWS,
    },
}
PARTS["gemma of six layers"] = PARTS["gemma"] | {"layers": 6}
PARTS["muon, experts"] = PARTS["experts"]
PARTS["qwen3, documents"] = PARTS["qwen3"]
"""Changes of the model in each variant."""


@dataclass(frozen=True)
class Trained:
    losses: list[float]
    gradient: dict[str, np.ndarray]
    """Clipped gradient of the first step, from AdamW's first moment or Muon's momentum."""


def job(layout: str, variant: str, **training: Any) -> JobSpec:
    common: dict[str, Any] = {"steps": STEPS, "global_batch": 16, "sequence_length": 32, **training}
    if "documents" in variant:
        common |= {"document_end": ord("\n"), "ignored_token": ord(" ")}
    if variant == "z-loss":
        common |= {"z_loss": 1e-2, "ignored_token": ord(" ")}
    optimizer = {"kind": "muon"} if variant.startswith("muon") else {}
    return job_on(layout, common, model=PARTS.get(variant, {}), optimizer=optimizer)


def trained(spec: JobSpec, folder: Path) -> Trained:
    program = program_of(spec)
    batches = batches_of(spec, program, folder)
    step, state = program.compile_step(), program.compile_initial()()
    losses: list[float] = []
    gradient: dict[str, np.ndarray] = {}
    for number in range(STEPS):
        state, result = step(state, batches.training(number))
        losses.append(float(result.loss))
        if number == 0:
            first = state.optimizer[0]
            moments = jax.tree_util.tree_leaves_with_path(
                first.mu if spec.optimizer.kind == "adamw" else first.inner_state[0].trace
            )
            gradient = {jax.tree_util.keystr(path): np.array(leaf) for path, leaf in moments}
    return Trained(losses, gradient)


def assert_gradients_equal(found: Trained, expected: Trained, tolerance: float) -> None:
    for leaf, gradient in expected.gradient.items():
        error = np.linalg.norm(found.gradient[leaf] - gradient) / np.linalg.norm(gradient)
        assert error < tolerance, (leaf, error)


@cache
def on_one_device(variant: str, folder: Path) -> Trained:
    return trained(job("one device", variant), folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("rows")


QUICK = {(STAGES, "dense"), (UNEVEN, "experts"), (TENSOR, "qwen3, documents")}
CASES = [
    *((name, "dense") for name in LAYOUTS if name != "one device"),
    *((name, "experts") for name in (TENSOR, STAGES, "accumulation 4", UNEVEN, UNEVEN_STAGES)),
    *((name, "documents") for name in (STAGES, UNEVEN, UNEVEN_STAGES)),
    (TENSOR, "qwen3, documents"),
    ("accumulation 4", "qwen3"),
    *((name, "gemma") for name in (TENSOR, "accumulation 4")),
    (STAGES, "gemma of six layers"),
    *((name, "muon") for name in (TENSOR, STAGES, "fsdp 8", UNEVEN)),
    *((name, "muon, experts") for name in (TENSOR, STAGES)),
    *((name, "z-loss") for name in (TENSOR, STAGES, UNEVEN, "accumulation 4, weights gathered once")),
]
MARKED = [pytest.param(*case, marks=() if case in QUICK else pytest.mark.complete) for case in CASES]


@pytest.mark.costs(cpu_seconds=30)
@pytest.mark.parametrize(("name", "variant"), MARKED)
def test_losses_and_gradients_are_those_of_one_device(name: str, variant: str, folder: Path) -> None:
    expected, found = on_one_device(variant, folder), trained(job(name, variant), folder)
    assert_gradients_equal(found, expected, 5e-6)
    # Step 1 sees the same weights; later ones carry AdamW's sensitivity to the last bits of a gradient.
    assert found.losses[0] == pytest.approx(expected.losses[0], rel=5e-7)
    assert found.losses == pytest.approx(expected.losses, rel=1e-3)


@pytest.mark.complete
@pytest.mark.parametrize("name", ["fsdp 8", "replica 2 x stage 2 x tensor 2", "accumulation 4, weights gathered once"])
def test_in_bfloat16_they_are_those_of_float32_but_for_its_rounding(name: str, folder: Path) -> None:
    expected, found = on_one_device("dense", folder), trained(job(name, "dense", compute_dtype="bfloat16"), folder)
    assert_gradients_equal(found, expected, 2e-2)
    assert found.losses[0] == pytest.approx(expected.losses[0], rel=5e-4)

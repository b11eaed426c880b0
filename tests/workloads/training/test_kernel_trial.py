"""The trial of kernels, with functions on a CPU in their place."""

from collections.abc import Mapping
from typing import Any

import jax
import pytest

from tests.workloads.training.attention_kernels import (
    PART,
    across_documents,
    not_finite,
    refused,
    right,
    slow,
    wrong_at_the_last_position,
    wrong_gradient,
)
from workloads.progress import KernelChosen, KernelPassedOver, KernelTried
from workloads.training.attention_trial import Mix
from workloads.training.kernel_trial import Finding, choose, trial

pytestmark = pytest.mark.costs(cpu_seconds=10)


def findings(kernels: Mapping[Any, Mix]) -> dict[str, Finding]:
    return {
        finding.kernel: finding
        for finding in trial(PART, kernels, jax.devices()[0], {"xla_backend_optimization_level": 0})
    }


def test_what_is_wrong_is_passed_over_with_how_wrong_it_is() -> None:
    found = findings(
        {
            "value": wrong_at_the_last_position,
            "gradient": wrong_gradient,
            "documents": across_documents,
            "nan": not_finite,
            "right": right,
        }
    )
    assert found.pop("right").fault == ""
    assert all("differs from plain arithmetic by" in finding.fault for finding in found.values())


def test_what_does_not_compile_is_passed_over_with_what_the_compiler_says() -> None:
    assert findings({"refused": refused})["refused"].fault == "NotImplementedError: Mosaic cannot lower this"


def test_the_fastest_of_the_right_kernels_is_chosen() -> None:
    found = findings({"fused": wrong_gradient, "splash": slow, "splash-2048": right})
    kernel, lines = choose(PART, [*found.values()], "v6e")
    assert kernel == "splash-2048"
    shared = [(type(line), getattr(line, "kernel", None)) for line in lines]
    assert shared == [
        (KernelPassedOver, "fused"),
        (KernelTried, "splash"),
        (KernelTried, "splash-2048"),
        (KernelChosen, "splash-2048"),
    ]


def test_plain_attention_is_left_when_no_kernel_is_right() -> None:
    kernel, lines = choose(PART, [*findings({"fused": refused, "splash": not_finite}).values()], "v6e")
    assert kernel == "reference"
    assert lines[-1] == KernelChosen("attention", "reference", "v6e", "no kernel can be used")

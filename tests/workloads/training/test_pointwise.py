"""Angles of the rotary embedding."""

import math

import numpy as np

from workloads.spec import load_preset
from workloads.training.pointwise import frequencies


def test_frequencies_are_meta_s_to_the_last_bit_of_float32() -> None:
    spec = load_preset("llama-3.1-8b").model
    half = spec.head_dim // 2
    scaling = spec.rope_scaling
    assert scaling is not None
    expected: list[float] = []
    for number in range(half):
        # This is Meta's `apply_scaling`.
        frequency = spec.rope_base ** (-number / half)
        wavelength = 2 * math.pi / frequency
        if wavelength > scaling.original_length / scaling.low_frequency_factor:
            frequency /= scaling.factor
        elif wavelength >= scaling.original_length / scaling.high_frequency_factor:
            smooth = (scaling.original_length / wavelength - scaling.low_frequency_factor) / (
                scaling.high_frequency_factor - scaling.low_frequency_factor
            )
            frequency = (1 - smooth) * frequency / scaling.factor + smooth * frequency
        expected.append(frequency)
    np.testing.assert_array_equal(frequencies(spec), np.asarray(expected, np.float32))

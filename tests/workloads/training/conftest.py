"""Tests of the trainer. Their marks `costs` name CPU time without a compilation cache."""

import os
from typing import Any

import jax
import pytest

# XLA reads it when it compiles its first program. What LLVM's optimisations take is longer than all computation here.
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"

_COMPILED: dict[tuple[str, ...], jax.stages.Compiled] = {}


@pytest.fixture(autouse=True)
def compiled_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Share compiled programs between tests, because most train the same job. Tests marked `compiles` are excluded."""
    if request.node.get_closest_marker("compiles"):
        return
    compile_anew = jax.stages.Lowered.compile

    def compiled(lowered: jax.stages.Lowered, options: dict[str, Any] | None = None) -> jax.stages.Compiled:
        key = (lowered.as_text(), str(lowered.in_tree), str(lowered.out_tree), repr(options))
        if key not in _COMPILED:
            _COMPILED[key] = compile_anew(lowered, options)
        return _COMPILED[key]

    monkeypatch.setattr(jax.stages.Lowered, "compile", compiled)

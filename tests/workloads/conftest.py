from collections.abc import Generator

import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache


@pytest.fixture
def compiled_anew() -> Generator[None]:
    """Nothing comes from JAX's compilation cache, which tests share."""
    jax.config.update("jax_enable_compilation_cache", False)
    compilation_cache.reset_cache()
    yield
    jax.config.update("jax_enable_compilation_cache", True)
    compilation_cache.reset_cache()

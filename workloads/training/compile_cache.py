"""Lets each host keep its compiled programs for the next attempt, in JAX's compilation cache.

The next attempt in the same pods runs the same programs. JAX stores them on the first host only, because it
expects one folder for all hosts. By default, each host has its own in its pod, and all others would compile again while
the first one waits for them.
"""

import warnings
from typing import Any

import jax
from jax._src import compilation_cache, compiler


def store_on_each_host() -> None:
    """Let JAX store compiled programs also on the hosts after the first, unless their folder is in a bucket."""
    folder = jax.config.jax_compilation_cache_dir
    if folder and "://" not in folder:
        compiler._cache_write = _write  # pyright: ignore[reportPrivateUsage]


def _write(key: str, seconds: float, name: str, backend: Any, executable: Any) -> None:
    """Store a program that took these seconds to compile, as JAX's function of this name does on the first host."""
    if seconds < jax.config.jax_persistent_cache_min_compile_time_secs:
        return
    try:
        compilation_cache.put_executable_and_time(key, name, executable, backend, int(seconds))
    except Exception as error:  # noqa: BLE001 - whatever is wrong, such as a full disk, it costs only time
        warnings.warn(f"the compiled program {name} is not kept for the next attempt: {error}", stacklevel=2)

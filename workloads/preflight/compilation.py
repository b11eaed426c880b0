"""One compilation: the program's text, its memory, and what it cost; or why there is no program.

Owns the capture of what the compiler writes to the process's error output, which is the only place
where it says that it gave up on a sharding.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import jax

_GIB = 1 << 30
_REMATERIALIZATION = "Involuntary full rematerialization"
_OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"


@dataclass(frozen=True)
class Memory:
    """Of one device, in GiB."""

    arguments_gib: float
    temporary_gib: float
    peak_gib: float


@dataclass(frozen=True)
class Compilation:
    """What one compilation gave."""

    wall_seconds: float
    cpu_seconds: float
    """Of this process, all threads."""
    text: str
    """The optimised module; empty when the program does not fit."""
    memory: Memory | None
    """None when the program does not fit."""
    does_not_fit: str
    """The compiler's own sentence when the program needs more memory than a device has; else empty."""
    complaints: tuple[str, ...]
    """Lines in which the compiler said that it copies an array in full where it should not."""


def compile_for_account(lower: Callable[[], jax.stages.Lowered]) -> Compilation:
    """Lower and compile.

    Raises:
        jax.errors.JaxRuntimeError: it does not compile, for another reason than memory.
    """
    wall, cpu = time.monotonic(), time.process_time()
    compiled, does_not_fit = None, ""
    with _error_output() as written:
        try:
            compiled = lower().compile()
        except jax.errors.JaxRuntimeError as fault:
            if _OUT_OF_MEMORY not in str(fault):
                raise
            does_not_fit = _sentence(str(fault))
    return Compilation(
        wall_seconds=time.monotonic() - wall,
        cpu_seconds=time.process_time() - cpu,
        text=compiled.as_text() or "" if compiled else "",
        memory=_memory(compiled) if compiled else None,
        does_not_fit=does_not_fit,
        complaints=tuple(line.strip() for line in written if _REMATERIALIZATION in line),
    )


def _memory(compiled: jax.stages.Compiled) -> Memory:
    analysis = compiled.memory_analysis()
    assert analysis is not None
    return Memory(
        arguments_gib=analysis.argument_size_in_bytes / _GIB,
        temporary_gib=analysis.temp_size_in_bytes / _GIB,
        peak_gib=analysis.peak_memory_in_bytes / _GIB,
    )


def _sentence(fault: str) -> str:
    found = re.search(r"(?:Ran out of memory|Used|Program).*?exceed[^.\n]*(?:\.\d[^.\n]*)*", fault)
    return found[0] if found else fault.splitlines()[0]


@contextmanager
def _error_output() -> Iterator[list[str]]:
    """Lines that anything in this process, libraries in C++ included, writes to file descriptor 2."""
    lines: list[str] = []
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            lines += file.read().decode(errors="replace").splitlines()

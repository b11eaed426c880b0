"""Compiles a program and captures its text, its memory and the compiler's cost, or the reason why there is none.

It captures the process's error output, the only place where the compiler reports that it gave up on a sharding, and
the compiler's dump of buffers, which also exists for a program that does not fit.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from workloads.preflight.arrays import biggest_arrays
from workloads.preflight_result import BigArray
from workloads.training.failures import is_out_of_memory, is_out_of_vmem

_GIB = 1 << 30
_UNITS = {"K": 2.0**-20, "M": 2.0**-10, "G": 1.0, "T": 2.0**10}
"""Units of the compiler's messages in GiB."""

_REMATERIALIZATION = "Involuntary full rematerialization"


@dataclass(frozen=True)
class Memory:
    """Memory of one device in GiB."""

    arguments_gib: float
    temporary_gib: float
    peak_gib: float
    """Without what the step keeps in the memory of its host."""


@dataclass(frozen=True)
class Excess:
    """Memory that a program that does not fit needs, and memory of a device."""

    needed_gib: float
    available_gib: float
    sentence: str
    """The compiler's message."""


@dataclass(frozen=True)
class Compilation:
    """Result of one compilation."""

    wall_seconds: float
    cpu_seconds: float
    """Processor time of all threads of this process."""
    text: str
    """Text of the optimised module. Empty if the program does not fit."""
    memory: Memory | None
    """Memory of the program. `None` if it does not fit."""
    excess: Excess | None
    """Memory needed and available. `None` if the program fits."""
    biggest_arrays: tuple[BigArray, ...]
    """Largest arrays, also of a program that does not fit."""
    complaints: tuple[str, ...]
    """Warnings of the compiler that it copies an array in full where it should not."""


def compile_for_account(compile_program: Callable[[dict[str, Any]], jax.stages.Compiled]) -> Compilation:
    """Compile a program and analyse it. `compile_program` gets the compiler options that the analysis needs.

    Raises:
        jax.errors.JaxRuntimeError: it does not compile for another reason than the memory of a device (HBM).
    """
    wall, cpu = time.monotonic(), time.process_time()
    compiled, excess = None, None
    with tempfile.TemporaryDirectory() as dump, _error_output() as written:
        try:
            compiled = compile_program({"xla_dump_to": dump, "xla_dump_hlo_as_text": True})
        except jax.errors.JaxRuntimeError as fault:
            if not is_out_of_memory(fault) or is_out_of_vmem(fault):
                raise
            excess = _excess(str(fault))
        arrays = _dumped_arrays(Path(dump))
    return Compilation(
        wall_seconds=time.monotonic() - wall,
        cpu_seconds=time.process_time() - cpu,
        text=compiled.as_text() or "" if compiled else "",
        memory=_memory(compiled) if compiled else None,
        excess=excess,
        biggest_arrays=arrays,
        complaints=tuple(line.strip() for line in written if _REMATERIALIZATION in line),
    )


def _dumped_arrays(folder: Path) -> tuple[BigArray, ...]:
    """Return the largest arrays of the step, the only compiled program. Only compilers for TPUs dump buffers."""
    programs = [*folder.glob("*.after_optimizations.txt")]
    live_ranges = [*folder.glob("*.after_optimizations-live-range.txt")]
    if not (programs and live_ranges):
        return ()
    return biggest_arrays(programs[0].read_text(), live_ranges[0].read_text())


def _memory(compiled: jax.stages.Compiled) -> Memory:
    analysis = compiled.memory_analysis()
    assert analysis is not None
    return Memory(
        arguments_gib=analysis.argument_size_in_bytes / _GIB,
        temporary_gib=analysis.temp_size_in_bytes / _GIB,
        # If a step keeps more on the host than on the device, the peak is that of the host.
        peak_gib=min(analysis.peak_memory_in_bytes, analysis.total_allocation_bytes) / _GIB,
    )


def _excess(fault: str) -> Excess:
    """Parse `Ran out of memory on HBM, the total memory required for ... (76.64G) exceeds available HBM (31.24G)`."""
    sentence = next((line for line in fault.splitlines() if "exceed" in line), fault.splitlines()[0])
    sizes = [float(number) * _UNITS[unit] for number, unit in re.findall(r"\(?([\d.]+)([KMGT])\b", sentence)]
    needed, available = sizes if len(sizes) == 2 else (float("nan"), float("nan"))
    return Excess(needed, available, sentence)


@contextmanager
def _error_output() -> Generator[list[str]]:
    """Capture the lines that this process, including C++ libraries, writes to file descriptor 2."""
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

"""Tries kernels that compute the same part of a layer on a device, and chooses the fastest that computes correctly.

Each kernel runs forward and backward with the shape of the job's layer. First it is compared with plain arithmetic in
float32 on part of that shape, then its time is measured.
"""

import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from workloads.progress import KernelChosen, KernelPassedOver, KernelTried, Line
from workloads.training.failures import first_line

TOLERANCE = 0.05
"""Largest allowed difference of a kernel's result from plain arithmetic in float32; see `difference`. With 8 bits,
operands and results are each rounded by up to 2^-9 of their size. In bfloat16 on a CPU, the largest difference for 512
to 1024 positions of attention is 0.018 for plain attention and 0.012 to 0.017 for its kernels, always in the gradient
by the query. A position that is computed wrongly differs by about 1. float32 has the same limit, because a TPU computes
its products in bfloat16 by default."""

MEASURED_SECONDS = 0.2
"""Time for which each kernel is run repeatedly. The fastest run counts."""

type Compute = Callable[..., Any]
"""A kernel. Its arguments and results are those of one part of a layer."""


class TriedPart(ABC):
    """A part of a layer that several kernels can compute, as one device computes it."""

    setting: ClassVar[str]
    """Setting of `training` that names the kernel."""
    plain: ClassVar[str]
    """What computes it on other devices than TPUs, and if no kernel can be used."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Name for people, such as `attention`."""

    @abstractmethod
    def candidates(self, platform: str) -> Mapping[str, Compute]:
        """Return the kernels for devices of `platform`, in the order of estimated speed. Only TPUs have some."""

    @property
    @abstractmethod
    def compared(self) -> Self:
        """Return a smaller part to compare, with blocks of the same size."""

    @property
    def compiled_alone(self) -> Self:
        """Return a smaller part whose kernels compile if and only if those of this one do."""
        return self

    @abstractmethod
    def inputs(self, device: Any) -> tuple[Any, ...]:
        """Return arrays like those of a job."""

    @abstractmethod
    def compiled(self, kernel: Compute, device: Any, options: Mapping[str, Any]) -> jax.stages.Compiled:
        """Compile inputs -> (result, gradients)."""

    @abstractmethod
    def vectors(self, results: Any) -> list[np.ndarray]:
        """Return results and gradients of `compiled` as vectors [..., N] in float32."""

    @abstractmethod
    def expected(self, device: Any) -> list[np.ndarray]:
        """Return the vectors by plain arithmetic in float32."""


@dataclass(frozen=True)
class Finding:
    """Result of testing one kernel."""

    kernel: str
    seconds: float = 0.0
    """Seconds of forward and backward pass of a layer."""
    difference: float = 0.0
    fault: str = ""
    """Reason why it cannot be used. Empty if it can."""


def trial(part: TriedPart, kernels: Mapping[str, Compute], device: Any, options: Mapping[str, Any]) -> list[Finding]:
    """Try each of `kernels` on `device`."""
    if not kernels:
        return []
    compared = part.compared
    # Kernels compile in parallel, because each takes seconds and mostly one core.
    with ThreadPoolExecutor(2 * len(kernels), "kernels") as compiler:
        programs = {
            name: [compiler.submit(each.compiled, kernel, device, options) for each in (compared, part)]
            for name, kernel in kernels.items()
        }
        expected = compared.expected(device)

        def finding(name: str) -> Finding:
            on_compared, on_all = programs[name]
            try:
                got = compared.vectors(on_compared.result()(*compared.inputs(device)))
                largest = float(np.max([difference(*pair) for pair in zip(got, expected, strict=True)]))
                # This is not `largest > TOLERANCE`, so that NaN is a fault.
                if not largest <= TOLERANCE:
                    return Finding(
                        name, fault=f"it differs from plain arithmetic by {largest:.3g}, and may by {TOLERANCE}"
                    )
                run, inputs = on_all.result(), part.inputs(device)
                if not all(bool(jnp.isfinite(each).all()) for each in jax.tree.leaves(run(*inputs))):
                    return Finding(name, fault="a result or gradient of the whole layer is not finite")
                return Finding(name, _best_seconds(run, inputs), largest)
            except Exception as error:  # noqa: BLE001 - whatever a kernel or its compiler raises, the job can use another one
                return Finding(name, fault=first_line(error))

        return [finding(name) for name in kernels]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between vectors [..., S, N] of one position.

    It is relative to the norm of that vector, or to the usual norm of the S vectors if that is larger.
    """
    norms = np.linalg.norm(expected, axis=-1)
    usual = np.sqrt(np.mean(norms**2, axis=-1, keepdims=True))
    return float(np.max(np.linalg.norm(got - expected, axis=-1) / np.maximum(norms, usual)))


def _best_seconds(run: jax.stages.Compiled, inputs: tuple[Any, ...]) -> float:
    taken: list[float] = []
    while sum(taken) < MEASURED_SECONDS:
        began = time.perf_counter()
        jax.block_until_ready(run(*inputs))
        taken.append(time.perf_counter() - began)
    return min(taken)


def merge(kernels: Iterable[str], by_host: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[Finding]:
    """Merge the hosts' results for each kernel: a fault if one of them found one, else the median time of all."""

    def merged(kernel: str) -> Finding:
        own = [(host, Finding(**each)) for host, found in by_host for each in found if each["kernel"] == kernel]
        if faults := [f"host {host}: {found.fault}" for host, found in own if found.fault]:
            return Finding(kernel, fault=faults[0])
        seconds = statistics.median(found.seconds for _, found in own)
        return Finding(kernel, seconds, max(found.difference for _, found in own))

    return [merged(kernel) for kernel in kernels]


def choose(part: TriedPart, findings: Sequence[Finding], chips: str) -> tuple[str, list[Line]]:
    """Return the fastest kernel that computes correctly, and the lines to print."""
    right = [finding for finding in findings if not finding.fault]
    fastest = min(right, key=lambda finding: finding.seconds).kernel if right else part.plain
    why = "it is the fastest that computes correctly" if right else "no kernel can be used"
    return fastest, [*lines(part, findings), KernelChosen(part.name, fastest, chips, why)]


def lines(part: TriedPart, findings: Iterable[Finding]) -> Iterator[Line]:
    """Yield a line about each finding."""
    for finding in findings:
        if finding.fault:
            yield KernelPassedOver(part.name, finding.kernel, finding.fault)
        else:
            yield KernelTried(part.name, finding.kernel, 1000 * finding.seconds, finding.difference)

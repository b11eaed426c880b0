"""Chooses the attention kernel of a job whose `training.attention` is `auto`.

On TPUs, each host of the first slice tests the kernels on one of its devices, forward and backward, with the shape of
the job's layer. First it compares them with plain attention in float32 on part of a sequence, then it measures their
time. All hosts choose by these results. A run that continues on the same kind of chips keeps its kernel, so that its
losses are bitwise equal to those of an uninterrupted run, unless that kernel cannot be used any more. Other devices
test nothing.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, SingleDeviceSharding

from workloads.progress import AttentionChanged, AttentionChosen, AttentionPassedOver, AttentionTried, Line
from workloads.spec import JobSpec, Kernel, ModelSpec
from workloads.training import attention
from workloads.training.attention import Heads, mix_plainly
from workloads.training.failures import first_line
from workloads.training.pointwise import rotation
from workloads.training.runs import recorded_kernel
from workloads.training.runtime import Processes

CANDIDATES: tuple[Kernel, ...] = ("fused", "splash", "splash-2048")
"""Kernels to test, in the order of estimated speed. `splash-2048` has fewer matrix products than `splash`, but adds up
more partial gradients outside of its kernel."""

TOLERANCE = 0.05
"""Largest allowed difference of a kernel's result from plain attention in float32; see `difference`. With 8 bits,
queries, keys, weights, results and the gradients of scores are each rounded by up to 2^-9 of their size. In bfloat16 on
a CPU, the largest difference for 512 to 1024 positions is 0.018 for plain attention and 0.012 to 0.017 for the kernels,
always in the gradient by the query. A position that is computed wrongly differs by about 1. float32 has the same limit,
because a TPU computes its products in bfloat16 by default."""

MAX_COMPARED_POSITIONS = 4096
"""Largest number of positions to compare, because plain attention holds all scores in memory. It is two of the largest
blocks."""

MEASURED_SECONDS = 0.2
"""Time for which each kernel is run repeatedly. The fastest run counts."""

type Mix = Callable[[jax.Array, attention.Sequence], jax.Array]
"""Function that computes attention of [B, K (G + 2) H, S], with the results of `tpu_attention.mix_by_kernel`."""


@dataclass(frozen=True)
class Layer:
    """Attention of one layer as one device computes it."""

    model: ModelSpec
    kv_heads: int
    """Number of kv heads on this device."""
    sequences: int
    """Number of sequences that the device computes at once."""
    positions: int
    dtype: str
    segmented: bool

    @classmethod
    def of(cls, spec: JobSpec) -> Self:
        training, shards = spec.training, spec.mesh.data_shards
        return cls(
            model=spec.model,
            kv_heads=spec.model.kv_heads // spec.mesh.tensor,
            sequences=training.part_rows(training.batch_rows(shards) // shards),
            positions=training.sequence_length,
            dtype=training.compute_dtype,
            segmented=training.document_end is not None,
        )

    @property
    def part(self) -> Self:
        """Return one sequence and one kv head, with enough positions for blocks of the same size."""
        fewest = ceil(self.positions / MAX_COMPARED_POSITIONS)
        parts = range(fewest, self.positions // 128 + 1)
        length = next((self.positions // count for count in parts if self.positions % (128 * count) == 0), None)
        return replace(self, kv_heads=1, sequences=1, positions=length or min(self.positions, MAX_COMPARED_POSITIONS))

    @property
    def rows(self) -> int:
        """Number of query heads, key and value of one kv head."""
        return self.model.queries_per_kv_head + 2

    def shapes(self, device: Any) -> tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct | None]:
        """Return shapes of the projected input, and of segments if documents are separated."""
        place = SingleDeviceSharding(device)
        features = self.kv_heads * self.rows * self.model.head_dim
        segments = jax.ShapeDtypeStruct((self.sequences, self.positions), jnp.int32, sharding=place)
        projected = jax.ShapeDtypeStruct((self.sequences, features, self.positions), self.dtype, sharding=place)
        return projected, segments if self.segmented else None

    def inputs(self, device: Any) -> tuple[jax.Array, jax.Array | None]:
        """Return normal numbers, as after a norm and an untrained projection, and documents of 1/5 of the sequence."""
        projected, segments = self.shapes(device)

        def make() -> tuple[jax.Array, jax.Array | None]:
            values = jax.random.normal(jax.random.key(0), projected.shape, projected.dtype)
            documents = jnp.arange(self.positions, dtype=jnp.int32) * 5 // self.positions
            return values, jnp.broadcast_to(documents, segments.shape) if segments else None

        return jax.jit(make, out_shardings=SingleDeviceSharding(device))()

    def compiled(self, mix: Mix, device: Any, options: Mapping[str, Any]) -> jax.stages.Compiled:
        """Compile (projected, segments) -> (mixed, gradient by projected)."""
        return jax.jit(partial(self._both, mix)).lower(*self.shapes(device)).compile(dict(options))

    def expected(self, device: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the result of plain attention in float32, by heads [B, K, rows, S, H]."""
        projected, segments = self.inputs(device)
        wide, heads = replace(self, dtype="float32"), Heads.of(self.model, "reference")

        def plain(projected: jax.Array, sequence: attention.Sequence) -> jax.Array:
            return mix_plainly(wide.by_heads(projected), heads, sequence)

        with jax.default_matmul_precision("highest"):
            mixed, gradient = jax.jit(partial(wide._both, plain))(projected.astype(jnp.float32), segments)
        return np.asarray(wide.by_heads(mixed)), np.asarray(wide.by_heads(gradient))

    def by_heads(self, values: jax.Array) -> jax.Array:
        """Reshape [B, K rows H, S] to [B, K, rows, S, H]. Values may already have that shape."""
        if values.ndim > 3:
            return values
        shape = (self.sequences, self.kv_heads, -1, self.model.head_dim, self.positions)
        return jnp.swapaxes(values.reshape(shape), -1, -2)

    def _both(self, mix: Mix, projected: jax.Array, segments: jax.Array | None) -> tuple[jax.Array, jax.Array]:
        sequence = attention.Sequence(rotation(self.model, self.positions), segments)
        mixed, pull_back = jax.vjp(lambda projected: mix(projected, sequence), projected)
        return mixed, pull_back(jnp.cos(mixed))[0]


@dataclass(frozen=True)
class Finding:
    """Result of testing one kernel."""

    kernel: Kernel
    seconds: float = 0.0
    """Seconds of forward and backward pass of a layer."""
    difference: float = 0.0
    fault: str = ""
    """Reason why it cannot be used. Empty if it can."""


@dataclass(frozen=True)
class Choice:
    """The kernel of this attempt, and the lines to print about it."""

    kernel: Kernel
    lines: tuple[Line, ...] = ()

    def made_in(self, spec: JobSpec) -> JobSpec:
        return spec.model_copy(update={"training": spec.training.model_copy(update={"attention": self.kernel})})


def settle(spec: JobSpec, mesh: Mesh, options: Mapping[str, Any], processes: Processes) -> Choice:
    """Return the kernel that all processes of the job compute with. All of them must call this function."""
    device, set_to = mesh.local_devices[0], spec.training.attention
    kernels = candidates(device.platform, spec.model)
    if not kernels:
        return Choice("reference")
    if set_to != "auto":
        return Choice(set_to)
    processes.deadline.expect("the trial of the attention kernels", spec.training.prepare_minutes)
    chips = spec.slices.generation
    earlier: Kernel | None = processes.share("attention/earlier", lambda: recorded_kernel(spec.storage, chips))
    tries = processes.index < spec.slices.hosts

    def run_trial(key: str, some: Mapping[Kernel, Mix]) -> list[Finding]:
        own = trial(Layer.of(spec), some, device, options) if tries else []
        return merge(some, processes.gather(key, (processes.host, [asdict(finding) for finding in own])))

    if earlier is None:
        return choose(run_trial("attention", kernels), chips)
    before: dict[Kernel, Mix] = {earlier: kernels[earlier]} if earlier in kernels else {}
    kept = run_trial("attention/kept", before)
    if not any(finding.fault for finding in kept):
        line = AttentionChosen(earlier, chips, "the run's earlier attempts used it")
        return Choice(earlier, (*map(_line, kept), line))
    others: dict[Kernel, Mix] = {kernel: mix for kernel, mix in kernels.items() if kernel != earlier}
    choice = choose([*kept, *run_trial("attention", others)], chips)
    return replace(choice, lines=(*choice.lines, AttentionChanged(earlier, choice.kernel, chips)))


def candidates(platform: str, model: ModelSpec) -> dict[Kernel, Mix]:
    """Return the kernels for devices of `platform`."""
    if platform != "tpu":
        return {}
    # Pallas is imported late, because it takes a while and is needed only on TPUs.
    from workloads.training.tpu_attention import mix_by_kernel

    def mix(kernel: Kernel) -> Mix:
        heads = Heads.of(model, kernel)
        if kernel == "fused":
            # `fused` refuses windows. The others compute layers with and without one.
            heads = replace(heads, window=model.window("local"))
        return lambda projected, sequence: mix_by_kernel(projected, heads, sequence)

    return {kernel: mix(kernel) for kernel in CANDIDATES}


def trial(layer: Layer, kernels: Mapping[Kernel, Mix], device: Any, options: Mapping[str, Any]) -> list[Finding]:
    """Try each of `kernels` on `device`."""
    if not kernels:
        return []
    part = layer.part
    # Kernels compile in parallel, because each takes seconds and mostly one core.
    with ThreadPoolExecutor(2 * len(kernels), "attention") as compiler:
        programs = {
            kernel: [compiler.submit(each.compiled, mix, device, options) for each in (part, layer)]
            for kernel, mix in kernels.items()
        }
        expected = part.expected(device)

        def finding(kernel: Kernel) -> Finding:
            on_part, on_all = programs[kernel]
            try:
                got = [np.asarray(part.by_heads(each), np.float32) for each in on_part.result()(*part.inputs(device))]
                largest = float(np.max([difference(*pair) for pair in zip(got, expected, strict=True)]))
                # This is not `largest > TOLERANCE`, so that NaN is a fault.
                if not largest <= TOLERANCE:
                    return Finding(
                        kernel, fault=f"it differs from plain attention by {largest:.3g}, and may by {TOLERANCE}"
                    )
                run, inputs = on_all.result(), layer.inputs(device)
                if not bool(jnp.isfinite(run(*inputs)[1]).all()):
                    return Finding(kernel, fault=f"its gradient by {layer.positions} positions is not finite")
                return Finding(kernel, _best_seconds(run, inputs), largest)
            except Exception as error:  # noqa: BLE001 - whatever a kernel or its compiler raises, the job can use another one
                return Finding(kernel, fault=first_line(error))

        return [finding(kernel) for kernel in kernels]


def difference(got: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference between vectors [..., S, H] of one head at one position.

    It is relative to the norm of that vector, or to the usual norm of the head if that is larger.
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


def merge(kernels: Iterable[Kernel], by_host: Sequence[tuple[str, Sequence[Mapping[str, Any]]]]) -> list[Finding]:
    """Merge the hosts' results for each kernel: a fault if one of them found one, else the median time of all."""

    def merged(kernel: Kernel) -> Finding:
        own = [(host, Finding(**each)) for host, found in by_host for each in found if each["kernel"] == kernel]
        if faults := [f"host {host}: {found.fault}" for host, found in own if found.fault]:
            return Finding(kernel, fault=faults[0])
        seconds = statistics.median(found.seconds for _, found in own)
        return Finding(kernel, seconds, max(found.difference for _, found in own))

    return [merged(kernel) for kernel in kernels]


def choose(findings: Sequence[Finding], chips: str) -> Choice:
    """Choose the fastest kernel that computes correctly."""
    lines: Iterator[Line] = map(_line, findings)
    right = [finding for finding in findings if not finding.fault]
    if not right:
        return Choice("reference", (*lines, AttentionChosen("reference", chips, "no kernel can be used")))
    kernel = min(right, key=lambda finding: finding.seconds).kernel
    return Choice(kernel, (*lines, AttentionChosen(kernel, chips, "it is the fastest that computes correctly")))


def _line(finding: Finding) -> Line:
    if finding.fault:
        return AttentionPassedOver(finding.kernel, finding.fault)
    return AttentionTried(finding.kernel, 1000 * finding.seconds, finding.difference)

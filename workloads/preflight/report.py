"""Formats the preflight's report as a table and as JSON."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from textwrap import wrap

from workloads.preflight.compilation import Compilation
from workloads.preflight.estimate import Account, Estimate
from workloads.preflight.topology import likely
from workloads.preflight.work import Operation, by_source
from workloads.spec import JobSpec, Spec, chips
from workloads.training.flops import flops_per_token

_WIDTH = 100
_SHOWN_SOURCES = 24
_SHOWN_OPERATIONS = 16


@dataclass(frozen=True)
class Report:
    """Everything that one preflight found. There is no account if the program does not fit."""

    spec: JobSpec
    compilation: Compilation | None
    """The compilation. `None` if the program's text was given."""
    done: Account | None
    estimate: Estimate | None

    def as_json(self) -> str:
        """Return all figures as JSON, for each instruction."""
        compilation = asdict(self.compilation) if self.compilation else None
        if compilation:
            del compilation["text"]
        totals: dict[str, object] | None = None
        instructions: dict[str, object] | None = None
        if done := self.done:
            totals = {
                "cycles": done.cycles,
                "matmul_flops": done.matmul_flops,
                "attention_flops": done.attention_flops,
                "grouped_flops": done.grouped_flops,
                "model_flops": _model_flops(self.spec),
                "ici": {kind: asdict(total) for kind, total in done.ici.items()},
                "dcn": {kind: asdict(total) for kind, total in done.dcn.items()},
            }
            kinds = ("operations", "unpriced", "kernels", "collectives", "transfers")
            instructions = {kind: [asdict(each) for each in getattr(done, kind)] for kind in kinds}
            instructions["unknown_loops"] = done.schedule.unknown_loops
        found = {
            "name": self.spec.name,
            "compilation": compilation,
            "totals": totals,
            "estimate": asdict(self.estimate) if self.estimate else None,
            "instructions": instructions,
        }
        return json.dumps(found, indent=1, default=Spec.model_dump)

    def as_table(self) -> str:
        """Return the main figures as tables of at most 100 columns."""
        return "\n".join(line[:_WIDTH].rstrip() for line in self._lines())

    def _lines(self) -> Iterator[str]:
        slices = self.spec.slices
        padding = f", {self.spec.padding:.1%} of the rows are padding" if self.spec.padding else ""
        yield (
            f"{self.spec.name}: {slices.count} x {slices.generation} {slices.topology}, mesh {self.spec.mesh},"
            f" {self.spec.training.global_batch} x {self.spec.training.sequence_length} tokens{padding}"
        )
        if self.compilation:
            yield from wrap(kernel.sentence, _WIDTH) if (kernel := likely(self.spec)) else ()
            yield from _memory(self.spec, self.compilation)
        if self.done and self.estimate:
            for part in (
                _steps(self.estimate),
                _flops(self.spec, self.done),
                _bytes(self.done),
                _sources(self.spec, self.done),
                _operations(self.spec, self.done),
            ):
                yield ""
                yield from part


def _memory(spec: JobSpec, compilation: Compilation) -> Iterator[str]:
    limit = chips.chip_of(spec.slices).usable_hbm_gib_per_device
    yield f"compiled in {compilation.wall_seconds:.1f} s ({compilation.cpu_seconds:.0f} s of CPU)"
    if compilation.memory:
        memory = compilation.memory
        yield (
            f"memory, GiB per device: peak {memory.peak_gib:.2f} of {limit:.2f};"
            f" arguments {memory.arguments_gib:.2f}, temporary {memory.temporary_gib:.2f}"
        )
    if compilation.memory and spec.training.local_save_every_steps:
        gib = compilation.memory.arguments_gib * spec.slices.devices_per_host
        yield (
            f"local checkpoints, GiB of memory per host: {2 * gib:.1f}, and {gib:.1f} more while it saves, if no"
            " replicas share a host"
        )
    if compilation.excess:
        excess = compilation.excess
        yield f"DOES NOT FIT: needs {excess.needed_gib:.2f} GiB of {excess.available_gib:.2f} GiB per device"
        yield from wrap(excess.sentence, _WIDTH)
    if compilation.biggest_arrays:
        yield ""
        rows = ((f"{array.gib:.2f}", array.shape, array.what) for array in compilation.biggest_arrays)
        yield from _align(("GiB at the peak", "largest arrays", "made by"), rows)
    yield from (f"WARNING: {line}" for line in compilation.complaints)


def _steps(estimate: Estimate) -> Iterator[str]:
    yield "ESTIMATED step, not measured: attention at an assumed share of the peak, DCN counts where exposed"
    yield from _align(
        (
            *("attention", "step s", "MFU", "tokens/s/chip", "compute s", "attention s", "grouped s", "ICI s"),
            *("DCN s", "exposed"),
        ),
        (
            (
                f"{step.kernel_efficiency:.0%}",
                f"{step.seconds:.4f}",
                f"{step.mfu:.1%}",
                f"{step.tokens_per_second_per_chip:.0f}",
                f"{estimate.compute_seconds:.4f}",
                f"{estimate.attention_seconds_at_peak / step.kernel_efficiency:.4f}",
                f"{estimate.grouped_seconds:.4f}",
                f"{estimate.ici_seconds:.4f}",
                f"{estimate.dcn_seconds:.4f}",
                f"{estimate.dcn_exposed_seconds:.4f}",
            )
            for step in estimate.steps
        ),
    )


def _flops(spec: JobSpec, done: Account) -> Iterator[str]:
    model = _model_flops(spec)
    parts = {"matmuls": done.matmul_flops, "attention": done.attention_flops, "grouped": done.grouped_flops}
    own = sum(parts.values())
    yield (
        f"TFLOP per device: model {model / 1e12:.1f}, program {own / 1e12:.1f}"
        f" ({', '.join(f'{part} {flops / 1e12:.1f}' for part, flops in parts.items())});"
        f" program / model {own / model:.2f}"
    )
    for kernel in done.kernels:
        flops = "UNPRICED" if kernel.flops is None else f"{kernel.flops / 1e9:.1f} GFLOP"
        yield f"  kernel {kernel.name} x {kernel.times}: {flops} each by {kernel.basis}"
    for operation in done.unpriced:
        yield f"  not in the estimate: {operation.name} x {operation.times}, {operation.source}, {operation.result}"
    if done.schedule.unknown_loops:
        yield f"WARNING: trip count unknown, counted once: {', '.join(done.schedule.unknown_loops)}"


def _bytes(done: Account) -> Iterator[str]:
    rows = [
        (f"ICI {kind}", total.count, f"{total.result_bytes / 1e6:.3f}", f"{total.sent_bytes / 1e6:.3f}")
        for kind, total in done.ici.items()
    ] + [(f"DCN {kind}", total.count, "", f"{total.sent_bytes / 1e6:.3f}") for kind, total in done.dcn.items()]
    yield from _align(("traffic per device and step", "runs", "result MB", "sent MB"), rows)


def _sources(spec: JobSpec, done: Account) -> Iterator[str]:
    clock, peak = chips.clock_hz(spec.slices), chips.device_peak(spec.slices)
    rows = by_source(done.operations)
    yield from _align(
        ("cycles by source", "phase", "ms", "TFLOP", "of peak"),
        (
            (source, phase, f"{1e3 * cycles / clock:.2f}", *_rate(flops, cycles / clock, peak))
            for phase, source, cycles, flops in rows[:_SHOWN_SOURCES]
        ),
    )
    rest = sum(cycles for *_, cycles, _ in rows[_SHOWN_SOURCES:])
    if rest:
        yield f"and {len(rows) - _SHOWN_SOURCES} more: {1e3 * rest / clock:.2f} ms"


def _operations(spec: JobSpec, done: Account) -> Iterator[str]:
    clock, peak = chips.clock_hz(spec.slices), chips.device_peak(spec.slices)
    biggest = sorted(done.operations, key=lambda each: -each.times * each.cycles)[:_SHOWN_OPERATIONS]

    def row(each: Operation) -> tuple[str, ...]:
        seconds = each.cycles / clock
        return (
            each.name[:34],
            f"{1e3 * each.times * seconds:.2f}",
            str(each.times),
            _rate(each.matmul_flops, seconds, peak)[1],
            f"{each.source[-24:]} {each.phase[:8]}",
            each.result,
        )

    yield from _align(("biggest instructions", "ms", "runs", "of peak", "source", "result"), map(row, biggest))


def _rate(flops: int, seconds: float, peak: float) -> tuple[str, str]:
    return (f"{flops / 1e12:.2f}", f"{flops / seconds / peak:.2f}") if flops and seconds else ("", "")


def _model_flops(spec: JobSpec) -> float:
    """Return the model FLOPs of one step on each device."""
    tokens = spec.training.global_batch * spec.training.sequence_length
    return flops_per_token(spec.model, spec.training.sequence_length, spec.training.lora) * tokens / spec.slices.devices


def _align(head: tuple[object, ...], rows: Iterable[tuple[object, ...]]) -> Iterator[str]:
    """Yield rows with aligned columns. Numbers are aligned right."""
    table = [tuple(map(str, row)) for row in (head, *rows)]
    columns = list(zip(*table, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numbers = [all(cell[:1].isdigit() for cell in column[1:] if cell) for column in columns]
    for row in table:
        cells = zip(row, widths, numbers, strict=True)
        yield "  ".join(cell.rjust(width) if number else cell.ljust(width) for cell, width, number in cells)

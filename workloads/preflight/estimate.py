"""Estimates seconds, FLOPs and bytes of one step from the program's text. Nothing is measured.

The time of a step is the sum of
  cycles that XLA estimates / clock
  + FLOPs of kernels / (assumed share of the peak, by their class), because XLA has no estimate of them
  + bytes of blocking collectives / rate of all ICI links
  + the wait for other slices, which is the part of their transfers that a replay of the schedule does not hide.
Copies to the host and asynchronous collectives count as hidden. Gathers and scatters have no estimate, so they count as
zero and are listed.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from workloads.preflight.hlo import Module, parse
from workloads.preflight.loops import Schedule, schedule
from workloads.preflight.traffic import (
    Collective,
    Kind,
    Total,
    Transfer,
    collectives,
    dcn_totals,
    exposed_seconds,
    ici_totals,
    transfers,
)
from workloads.preflight.work import Kernel, Operation, kernels, operations, unpriced
from workloads.preflight_result import StepEstimate
from workloads.spec import JobSpec, chips
from workloads.training.flops import flops_per_token, utilisation

KERNEL_EFFICIENCIES = (0.25, 0.35, 0.5)
"""Assumed shares of the peak at which attention kernels run. The real share is only known on a TPU. `calibration.yaml`
compares the middle one with measurements."""


@dataclass(frozen=True)
class Account:
    """All instructions of one step on one device."""

    module: Module
    schedule: Schedule
    operations: tuple[Operation, ...]
    unpriced: tuple[Operation, ...]
    """Operations that take time but are not in the estimate."""
    kernels: tuple[Kernel, ...]
    collectives: tuple[Collective, ...]
    transfers: tuple[Transfer, ...]

    @property
    def cycles(self) -> int:
        return sum(each.times * each.cycles for each in self.operations)

    @property
    def matmul_flops(self) -> int:
        return sum(each.times * each.matmul_flops for each in self.operations)

    @property
    def attention_flops(self) -> int:
        return sum(each.times * (each.flops or 0) for each in self.kernels if not each.grouped)

    @property
    def grouped_flops(self) -> int:
        return sum(each.times * (each.flops or 0) for each in self.kernels if each.grouped)

    @property
    def blocking_bytes(self) -> float:
        return sum(each.times * each.wire_bytes for each in self.collectives if each.blocking)

    @property
    def ici(self) -> Mapping[Kind, Total]:
        return ici_totals(self.collectives)

    @property
    def dcn(self) -> Mapping[str, Total]:
        return dcn_totals(self.transfers)


@dataclass(frozen=True)
class Estimate:
    """Estimated seconds of one step on one device."""

    compute_seconds: float
    attention_seconds_at_peak: float
    grouped_seconds: float
    """Time of the kernels of grouped products at the efficiency of `chips`."""
    ici_seconds: float
    dcn_seconds: float
    """Time of all transfers between slices if the step did nothing else."""
    dcn_exposed_seconds: float
    """Part of them that the program waits for, which is in every step of `steps`. It assumes the best kernel
    efficiency, which leaves the least time to hide them."""
    steps: tuple[StepEstimate, ...]


def account(text: str) -> Account:
    """Return what the optimised module `text` does."""
    module = parse(text)
    runs = schedule(module)
    return Account(
        module,
        runs,
        operations(module, runs),
        unpriced(module, runs),
        kernels(module, runs),
        collectives(module, runs),
        transfers(module, runs),
    )


def estimate(spec: JobSpec, done: Account) -> Estimate:
    """Estimate the seconds of a step of `spec` from its account `done`."""
    compute, peak = done.cycles / chips.clock_hz(spec.slices), chips.device_peak(spec.slices)
    attention = done.attention_flops / peak
    grouped = done.grouped_flops / peak / chips.chip_of(spec.slices).grouped_efficiency
    ici = done.blocking_bytes / chips.ici_bytes_per_second(spec.slices)
    dcn = sum(each.times * _seconds(spec, each) for each in done.transfers)
    exposed = _exposed_seconds(spec, done)
    rest = compute + grouped + ici + exposed
    return Estimate(
        compute_seconds=compute,
        attention_seconds_at_peak=attention,
        grouped_seconds=grouped,
        ici_seconds=ici,
        dcn_seconds=dcn,
        dcn_exposed_seconds=exposed,
        steps=tuple(_step(spec, share, attention / share + rest) for share in KERNEL_EFFICIENCIES),
    )


def _exposed_seconds(spec: JobSpec, done: Account) -> float:
    clock, peak = chips.clock_hz(spec.slices), chips.device_peak(spec.slices)
    ici = chips.ici_bytes_per_second(spec.slices)
    attention, grouped = max(KERNEL_EFFICIENCIES), chips.chip_of(spec.slices).grouped_efficiency
    seconds = {each.name: each.cycles / clock for each in done.operations}
    for each in done.kernels:
        seconds[each.name] = (each.flops or 0) / peak / (grouped if each.grouped else attention)
    seconds |= {each.name: each.wire_bytes / ici for each in done.collectives if each.blocking}
    sends = {each.name: _seconds(spec, each) for each in done.transfers}
    return exposed_seconds(done.module, done.schedule, seconds, sends)


def _seconds(spec: JobSpec, transfer: Transfer) -> float:
    """Return the seconds of one run of `transfer`.

    A sum goes around a ring of n slices, where each sends 2 (n - 1) / n of what it sums. n is the number of all slices,
    even if a pipeline's stages are on several of them.
    """
    rounds = 2 * (1 - 1 / spec.slices.count) if transfer.kind == "ALL_REDUCE" else 1.0
    return rounds * transfer.sent_bytes / chips.dcn_bytes_per_second(spec.slices)


def _step(spec: JobSpec, share: float, seconds: float) -> StepEstimate:
    training, slices = spec.training, spec.slices
    rate = training.global_batch * training.sequence_length / seconds
    mfu = utilisation(rate, flops_per_token(spec.model, training.sequence_length, training.lora), slices)
    chip_count = slices.devices // slices.devices_per_chip
    return StepEstimate(
        kernel_efficiency=share, seconds=seconds, mfu=mfu or 0.0, tokens_per_second_per_chip=rate / chip_count
    )

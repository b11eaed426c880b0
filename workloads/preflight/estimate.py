"""Seconds, FLOPs and bytes of one step, from the program's text. An estimate, not a measurement.

Owns the rule by which the parts add up:
  cycles that XLA estimates / clock
  + FLOPs of Pallas kernels / (assumed share of the peak), for XLA has no estimate of them
  + bytes of blocking collectives / rate of all ICI links.
Transfers between slices, copies to the host and asynchronous collectives count as hidden behind it;
gathers and scatters have no estimate, cost nothing here, and are named. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from workloads.preflight import chips
from workloads.preflight.hlo import parse
from workloads.preflight.loops import schedule
from workloads.preflight.traffic import (
    Collective,
    Kind,
    Total,
    Transfer,
    collectives,
    dcn_totals,
    ici_totals,
    transfers,
)
from workloads.preflight.work import Kernel, Operation, kernels, operations, unpriced
from workloads.spec import JobSpec
from workloads.training.flops import flops_per_token, utilisation

KERNEL_EFFICIENCIES = (0.25, 0.35, 0.5)
"""Shares of the peak at which kernels are assumed to run; only a TPU can tell."""


@dataclass(frozen=True)
class Account:
    """All that one step does on one device, instruction by instruction."""

    operations: tuple[Operation, ...]
    unpriced: tuple[Operation, ...]
    """What takes time and is not in the estimate."""
    kernels: tuple[Kernel, ...]
    collectives: tuple[Collective, ...]
    transfers: tuple[Transfer, ...]
    unknown_loops: tuple[str, ...]

    @property
    def cycles(self) -> int:
        return sum(each.times * each.cycles for each in self.operations)

    @property
    def matmul_flops(self) -> int:
        return sum(each.times * each.matmul_flops for each in self.operations)

    @property
    def kernel_flops(self) -> int:
        return sum(each.times * (each.flops or 0) for each in self.kernels)

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
class Step:
    """A step at one assumed efficiency of the kernels."""

    kernel_efficiency: float
    seconds: float
    mfu: float
    tokens_per_second_per_chip: float


@dataclass(frozen=True)
class Estimate:
    """One step on one device, in seconds."""

    compute_seconds: float
    kernel_seconds_at_peak: float
    ici_seconds: float
    dcn_seconds_if_exposed: float
    """What the transfers between slices would add if nothing hid them."""
    steps: tuple[Step, ...]


def account(text: str) -> Account:
    """What the optimised module `text` does."""
    module = parse(text)
    runs = schedule(module)
    return Account(
        operations(module, runs),
        unpriced(module, runs),
        kernels(module, runs),
        collectives(module, runs),
        transfers(module, runs),
        runs.unknown_loops,
    )


def estimate(spec: JobSpec, done: Account) -> Estimate:
    """Seconds of a step of `spec` that does what `done` says."""
    compute = done.cycles / chips.clock_hz(spec.slices)
    kernel = done.kernel_flops / chips.device_peak(spec.slices)
    ici = done.blocking_bytes / chips.ici_bytes_per_second(spec.slices)
    dcn = sum(total.sent_bytes for total in done.dcn.values()) / chips.dcn_bytes_per_second(spec.slices)
    return Estimate(
        compute_seconds=compute,
        kernel_seconds_at_peak=kernel,
        ici_seconds=ici,
        dcn_seconds_if_exposed=dcn,
        steps=tuple(_step(spec, share, compute + kernel / share + ici) for share in KERNEL_EFFICIENCIES),
    )


def _step(spec: JobSpec, share: float, seconds: float) -> Step:
    training, slices = spec.training, spec.slices
    rate = training.global_batch * training.sequence_length / seconds
    mfu = utilisation(rate, flops_per_token(spec.model, training.sequence_length), slices)
    chip_count = slices.devices // slices.devices_per_chip
    return Step(share, seconds, mfu or 0.0, rate / chip_count)

"""The hardware of a job: its TPU slices and the mesh of their devices."""

from math import prod
from typing import Annotated, Self

from pydantic import Field, model_validator

from workloads.spec.base import PositiveInt, Spec, WholeNumber

MAX_SLICES, MAX_DEVICES = 4096, 1 << 20
"""Limits above every real job, so that loops over devices or over their divisors stay short."""


class SliceSpec(Spec):
    """The TPU slices of a job, from the plan's accelerator table."""

    generation: str
    topology: str
    count: Annotated[WholeNumber, Field(gt=0, le=MAX_SLICES)]
    min_count: PositiveInt | None = None
    """Smallest number of slices that an attempt may run on, with the same global batch. If the batch does not divide
    evenly over the slices, rows of padding without effect are added. Default: the job runs only on all slices, and
    `training.global_batch` must divide evenly."""
    hosts: PositiveInt
    """Hosts per slice."""
    chips_per_host: PositiveInt
    devices_per_chip: PositiveInt
    """JAX devices per chip: 2 on 7x, else 1."""
    peak_bf16_tflops_per_chip: float
    hbm_gib_per_chip: float

    @model_validator(mode="after")
    def _can_be_counted(self) -> Self:
        if self.devices > MAX_DEVICES:
            raise ValueError(f"slices must have at most {MAX_DEVICES} devices in all, got {self.devices}")
        return self

    @classmethod
    def of_cpu(cls, count: int, hosts: int, chips_per_host: int) -> Self:
        """Return slices whose chips are CPU devices, which have neither a rated peak nor separate memory."""
        return cls(
            generation="cpu",
            topology=f"{hosts}x{chips_per_host}",
            count=count,
            hosts=hosts,
            chips_per_host=chips_per_host,
            devices_per_chip=1,
            peak_bf16_tflops_per_chip=0.0,
            hbm_gib_per_chip=0.0,
        )

    @property
    def fewest(self) -> int:
        """Smallest number of slices that an attempt may start on."""
        return self.count if self.min_count is None else self.min_count

    @property
    def total_hosts(self) -> int:
        return self.count * self.hosts

    @property
    def devices_per_host(self) -> int:
        return self.chips_per_host * self.devices_per_chip

    @property
    def devices_per_slice(self) -> int:
        return self.hosts * self.devices_per_host

    @property
    def devices(self) -> int:
        return self.count * self.devices_per_slice

    @property
    def chips(self) -> int:
        return self.total_hosts * self.chips_per_host


class MeshSpec(Spec):
    """Sizes of the mesh axes, outer to inner; their product is the number of devices."""

    replica: PositiveInt
    """Data parallel, over slices (DCN). Each replica holds all weights and computes its part of the batch."""
    stage: PositiveInt = 1
    """Pipeline parallel. Each stage holds its part of the layers and is inside a slice or made of whole slices."""
    fsdp: PositiveInt
    """Fully sharded data parallel, within a slice (ICI). Weights are split by rows, the batch by sequences."""
    tensor: PositiveInt = 1
    """Tensor parallel, within a slice (ICI). Heads, MLP columns and the positions of a sequence are split."""

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes by axis, outer to inner."""
        return self.model_dump()

    @property
    def devices(self) -> int:
        return prod(self.sizes.values())

    @property
    def data_shards(self) -> int:
        return self.replica * self.fsdp

    def share_of_host(self, devices: int) -> float:
        """Return the share of all weights that a host of `devices` holds, each once.

        A replica's devices hold different shards of the matrices. Norm scales, which all of them hold, are too small to
        count.
        """
        shards = self.devices // self.replica
        return min(devices, shards) / shards

    def __str__(self) -> str:
        return " x ".join(
            f"{axis} {size}" for axis, size in self.sizes.items() if size > 1 or axis in ("replica", "fsdp")
        )

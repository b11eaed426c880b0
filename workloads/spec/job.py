"""The specification of a whole job."""

from math import ceil
from operator import not_
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from workloads.spec.base import Spec
from workloads.spec.data import DataSpec
from workloads.spec.fit import size_faults
from workloads.spec.model import ModelSpec
from workloads.spec.slices import MeshSpec, SliceSpec
from workloads.spec.training import OptimizerSetting, OptimizerSpec, TrainingSpec


class StorageSpec(Spec):
    """Where the job keeps checkpoints, ledger and manifest."""

    path: str
    """`gs://BUCKET/JOB` or a local folder; runs lie in `runs/<run id>` below it."""
    existing_run: Literal["resume", "anew"]
    """When the path holds an earlier run: go on with it, or begin a new one beside it."""
    allow_changes: Annotated[tuple[OptimizerSetting, ...], Field(exclude_if=not_)] = ()
    """Settings of the optimizer that the earlier run may have been trained with other values of; all others must be
    the same."""


class JobSpec(Spec):
    """All that a host needs to train: written by the plan, read by the trainer and the preflight."""

    name: str
    preset: str
    slices: SliceSpec
    mesh: MeshSpec
    model: ModelSpec
    data: DataSpec
    optimizer: OptimizerSpec
    training: TrainingSpec
    storage: StorageSpec
    initial_weights: str | None = None
    """Folder that `python -m workloads.weights import` or `python -m workloads.training.export` wrote, as every
    host sees it; a new run begins with these weights. None: with weights drawn from the seed."""

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if faults := self._faults():
            raise ValueError("; ".join(faults))
        return self

    def on_slices(self, count: int) -> Self:
        """The same job on another number of slices: more or fewer replicas, and as much more or less accumulation
        as keeps the global batch and holds no more sequences at once on a device. How few would do has been
        settled then, and is asked of the job on all its slices alone.

        Raises:
            ValueError: the job's sizes do not fit that many slices.
        """
        job = self._scaled_to(count)
        if faults := size_faults(job.slices, job.mesh, job.model, job.training):
            raise ValueError(f"on {count} of its {self.slices.count} slices: {'; '.join(faults)}")
        return job

    def _scaled_to(self, count: int) -> Self:
        replica = self.mesh.replica * count // self.slices.count
        accumulation = ceil(self.training.accumulation * self.slices.count / count)
        return self.model_copy(
            update={
                "slices": self.slices.model_copy(update={"count": count, "min_count": None}),
                "mesh": self.mesh.model_copy(update={"replica": replica}),
                "training": self.training.model_copy(update={"accumulation": accumulation}),
            }
        )

    def _faults(self) -> list[str]:
        faults = [*self._token_faults(), *size_faults(self.slices, self.mesh, self.model, self.training)]
        return faults or self._elastic_faults()

    def _token_faults(self) -> list[str]:
        """A token that the data cannot hold would be looked for in vain, and nothing would tell."""
        named = {name: getattr(self.training, name) for name in ("ignored_token", "document_end")}
        size = self.model.vocab_size
        return [
            f"training.{name} must be a token, below model.vocab_size ({size}), got {token}"
            for name, token in named.items()
            if token is not None and token >= size
        ]

    def _elastic_faults(self) -> list[str]:
        fewest, all_of_them = self.slices.min_count, self.slices.count
        if fewest is None:
            return []
        if fewest > all_of_them:
            return [f"slices.min_count must be at most slices.count ({all_of_them}), got {fewest}"]
        if self.mesh.replica % all_of_them:
            return [
                f"slices.min_count needs mesh.replica to be a multiple of slices.count ({all_of_them}), so that a"
                f" slice can be missed, got {self.mesh.replica}"
            ]
        faults: list[str] = []
        for count in range(fewest, all_of_them):
            try:
                self.on_slices(count)
            except ValueError as fault:
                faults.append(f"slices.min_count {fewest}: {fault}")
        return faults

"""Reads the weights that a new run begins with or adapts, if its job has a folder of them.

It checks that they are complete and belong to the job's model. The folder's layout is in `parameter_folder`.
"""

from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath

from workloads.spec import JobSpec, ModelSpec
from workloads.training.failures import InvalidSpec, first_line
from workloads.training.fingerprint import Fingerprints, Take, compile_fingerprints
from workloads.training.model import Tree
from workloads.training.parameter_folder import PARAMETERS, About, read, read_about, require_written
from workloads.training.restore import Restore
from workloads.training.runtime import Processes
from workloads.training.step import TrainState

FREE_TO_CHANGE: dict[str, Any] = {
    "rope_base": True,
    "rope_scaling": True,
    "rope_linear_factor": True,
    "windows": {"rope_base"},
    "norm_epsilon": True,
    "experts": {"per_token", "balance_weight"},
}
"""Settings of the model that may differ from those of its weights, for example to continue with longer sequences."""


@dataclass(frozen=True)
class InitialWeights:
    """The folder of a job's weights, and the model that they must belong to."""

    folder: epath.Path
    model: ModelSpec
    read_once_from_replicas: int
    """See `TrainingSpec`."""

    @classmethod
    def of(cls, spec: JobSpec) -> "InitialWeights | None":
        """Return the initial weights of a job. `None` if it has no folder of them."""
        if not spec.initial_weights:
            return None
        return cls(epath.Path(spec.initial_weights), spec.model, spec.training.read_once_from_replicas)

    def put_into(self, state: TrainState, take: Take, processes: Processes) -> TrainState:
        """Return `state`, which is donated, with these weights.

        Raises:
            InvalidSpec: the weights are missing, of another model, or damaged. The result is the same in every process.
        """
        shapes = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding), state.parameters
        )
        # The drawn weights are deleted to make room for those that are read.
        for leaf in jax.tree.leaves(state.parameters):
            leaf.delete()
        about, parameters = self._read_together(shapes, processes)
        state = replace(state, parameters=parameters)
        self._verify(about, take(state))
        return state

    def frozen(self, shapes: Tree, processes: Processes) -> Tree:
        """Return these weights as frozen weights with the types and shardings of `shapes`.

        Raises:
            InvalidSpec: as for `put_into`.
        """
        written = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=leaf.sharding), shapes
        )
        about, parameters = self._read_together(written, processes)
        self._verify(about, compile_fingerprints({PARAMETERS: written})({PARAMETERS: parameters}))
        return jax.tree.map(_in_type_of, parameters, shapes)

    def _read_together(self, shapes: Tree, processes: Processes) -> tuple[About, Tree]:
        restore, found, fault = Restore(shapes, self.read_once_from_replicas), None, ""
        try:
            about = read_about(self.folder)
            self._require_same_model(about.model)
            found = about, restore.read(lambda shapes: read(self.folder, shapes))
        except InvalidSpec as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - damaged data reaches us as ValueError or as a bare Exception
            fault = f"{self.folder} cannot be read: {first_line(error)}"
        # The other processes need the error before they wait for this one.
        faults = processes.gather("initial-weights", fault)
        if found is None or any(faults):
            raise InvalidSpec("; ".join(dict.fromkeys(filter(None, faults))))
        # These are collectives. Only now is it certain that all processes take part.
        about, read_here = found
        return about, restore.spread(read_here)

    def _require_same_model(self, model: ModelSpec) -> None:
        expected, got = (one.model_dump(exclude=FREE_TO_CHANGE) for one in (self.model, model))
        # A dump leaves out features that the model does not have.
        names = [name for name in dict.fromkeys([*expected, *got]) if expected.get(name) != got.get(name)]
        wrong = [f"model.{name}: expected {expected.get(name)}, got {got.get(name)}" for name in names]
        if wrong:
            raise InvalidSpec(
                f"the weights in {self.folder} are of another model: {'; '.join(wrong)}; choose the preset that they"
                " belong to, or leave out initial_weights"
            )

    def _verify(self, about: About, replicas: list[Fingerprints]) -> None:
        ours = f"{PARAMETERS}."
        require_written(
            self.folder,
            about,
            [{name: one for name, one in replica.items() if name.startswith(ours)} for replica in replicas],
        )


def _in_type_of(array: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """Convert `array`, which is deleted. Only one array at a time is in memory twice, because all may not fit."""
    if array.dtype == shape.dtype:
        return array
    other = jax.block_until_ready(jax.jit(lambda leaf: leaf.astype(shape.dtype), out_shardings=shape.sharding)(array))
    array.delete()
    return other

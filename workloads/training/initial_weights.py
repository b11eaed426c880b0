"""The weights that a new run begins with, or adapts, when its job names a folder of them.

Owns the check that they are of the job's model and whole. What the folder holds is up to `parameter_folder`.
"""

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath

from workloads.spec import JobSpec, ModelSpec
from workloads.training.failures import InvalidSpec
from workloads.training.fingerprint import Fingerprints, Take, compile_fingerprints, differing
from workloads.training.model import Tree
from workloads.training.parameter_folder import PARAMETERS, About, read, read_about
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
"""What a job may change of the model whose weights it begins with, such as to go on with longer sequences."""


@dataclass(frozen=True)
class InitialWeights:
    """The folder that a job names, and the model that its weights must be of."""

    folder: epath.Path
    model: ModelSpec
    read_once_from_replicas: int
    """See `TrainingSpec`."""

    @classmethod
    def of(cls, spec: JobSpec) -> "InitialWeights | None":
        """Of a job that names a folder."""
        if not spec.initial_weights:
            return None
        return cls(epath.Path(spec.initial_weights), spec.model, spec.training.read_once_from_replicas)

    def put_into(self, state: TrainState, take: Take, processes: Processes) -> TrainState:
        """`state`, which is used up, with these weights.

        Raises:
            InvalidSpec: they are not there, of another model, or not what was written; in every process alike.
        """
        shapes = jax.tree.map(_shape, state.parameters)
        # The drawn weights make room for those that are read.
        for leaf in jax.tree.leaves(state.parameters):
            leaf.delete()
        found = self._read_together(shapes, processes)
        state = replace(state, parameters=found.parameters)
        self._verify(found.about, take(state))
        return state

    def frozen(self, shapes: Tree, processes: Processes) -> Tree:
        """These weights, not to be trained, with the types and shardings of `shapes`.

        Raises:
            InvalidSpec: as for `put_into`.
        """
        written = jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.float32, sharding=leaf.sharding), shapes
        )
        found = self._read_together(written, processes)
        self._verify(found.about, compile_fingerprints({PARAMETERS: written})({PARAMETERS: found.parameters}))
        return jax.tree.map(_in_type_of, found.parameters, shapes)

    def _read_together(self, shapes: Tree, processes: Processes) -> "_Found":
        restore = Restore(shapes, self.read_once_from_replicas)
        found = self._found(restore)
        faults = processes.gather("initial-weights", found if isinstance(found, str) else "")
        if isinstance(found, str) or any(faults):
            raise InvalidSpec("; ".join(dict.fromkeys(filter(None, faults))))
        # Collectives: only now is it certain that all take part.
        return replace(found, parameters=restore.spread(found.parameters))

    def _found(self, restore: Restore) -> "_Found | str":
        """What the folder holds, or what is wrong with it: the others must hear of that before they wait for us."""
        try:
            about = read_about(self.folder)
            self._require_same_model(about.model)
            return _Found(about, restore.read(lambda shapes: read(self.folder, shapes)))
        except InvalidSpec as fault:
            return str(fault)
        except Exception as error:  # noqa: BLE001 - damaged data reaches us as ValueError or as a bare Exception
            return f"{self.folder} cannot be read: {type(error).__name__}: {error}".splitlines()[0]

    def _require_same_model(self, model: ModelSpec) -> None:
        expected, got = (one.model_dump(exclude=FREE_TO_CHANGE) for one in (self.model, model))
        # A dump leaves out what the model does not have.
        names = [name for name in dict.fromkeys([*expected, *got]) if expected.get(name) != got.get(name)]
        wrong = [f"model.{name}: expected {expected.get(name)}, got {got.get(name)}" for name in names]
        if wrong:
            raise InvalidSpec(
                f"the weights in {self.folder} are of another model: {'; '.join(wrong)}; choose the preset that they"
                " belong to, or leave out initial_weights"
            )

    def _verify(self, about: About, replicas: list[Fingerprints]) -> None:
        ours = f"{PARAMETERS}."
        found = [{name: one for name, one in replica.items() if name.startswith(ours)} for replica in replicas]
        if wrong := differing(about.fingerprints, found):
            raise InvalidSpec(f"{self.folder} does not hold what was written: {'; '.join(wrong)}; make the folder anew")


@dataclass(frozen=True)
class _Found:
    about: About
    parameters: Tree


def weights_digest(folder: str) -> str:
    """SHA-256 of the fingerprints of the weights in `folder`, wherever it is.

    Raises:
        InvalidSpec: it is no folder of weights.
    """
    fingerprints = read_about(epath.Path(folder)).fingerprints
    return hashlib.sha256(json.dumps(fingerprints, sort_keys=True).encode()).hexdigest()


def _in_type_of(array: jax.Array, shape: jax.ShapeDtypeStruct) -> jax.Array:
    """`array`, which is used up, one after the other: all of them in two types may not fit."""
    if array.dtype == shape.dtype:
        return array
    other = jax.block_until_ready(jax.jit(lambda leaf: leaf.astype(shape.dtype), out_shardings=shape.sharding)(array))
    array.delete()
    return other


def _shape(array: jax.Array) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=array.sharding)

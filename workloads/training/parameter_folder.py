"""Reads and writes a folder with only the parameters of a model:

    parameters/     Orbax checkpoint: a nested dict of full float32 arrays
    export.json     the model, the fingerprint of each array, and their origin

`export` and `workloads.weights` write such folders; `initial_weights` and `workloads.weights` read them.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from functools import reduce
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pydantic import ValidationError

from workloads.spec import LoraSpec, ModelSpec, Spec
from workloads.training.adapters import initial_adapters
from workloads.training.failures import InvalidSpec
from workloads.training.fingerprint import Fingerprints, compile_fingerprints, differences
from workloads.training.layout import Tree
from workloads.training.mesh import AXES
from workloads.training.model import initial_parameters

PARAMETERS = "parameters"
"""Name of the parameters in the training state, in the checkpoint and in the folder."""

_ABOUT = "export.json"


class About(Spec):
    """Facts of the arrays in the folder."""

    step: int
    """Number of optimizer steps done. 0 if the parameters were imported."""
    model: ModelSpec
    sequence_length: int
    """Tokens per sequence that the parameters are made for."""
    fingerprints: Fingerprints
    manifest: dict[str, Any]
    """Manifest of the attempt that trained them (see `runs`) or of the import."""

    @property
    def digest(self) -> str:
        """SHA-256 of the fingerprints, which does not depend on the folder's path."""
        return hashlib.sha256(json.dumps(self.fingerprints, sort_keys=True).encode()).hexdigest()


def named_folder(text: str) -> epath.Path:
    """Return a folder that a command line names, local or `gs://`. Orbax accepts only absolute local paths."""
    return epath.Path(text if "://" in text else os.path.abspath(text))


def require_new(folder: epath.Path) -> None:
    """Check that a folder does not exist.

    Raises:
        InvalidSpec: `folder` exists.
    """
    if folder.exists():
        raise InvalidSpec(f"{folder} must be a new folder, but it exists; choose another")


def write(folder: epath.Path, parameters: Tree, about: About) -> None:
    """Write the folder.

    `export.json` is written last and completes the folder. After an error, the folder is removed, so that it does not
    block the next try.
    """
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / PARAMETERS, parameters)
        (folder / _ABOUT).write_text(json.dumps(about.model_dump(mode="json"), indent=2) + "\n")
    except BaseException:
        folder.rmtree(missing_ok=True)
        raise


def read_about(folder: epath.Path) -> About:
    """Return the facts of the parameters in `folder`.

    Raises:
        InvalidSpec: it is not such a folder.
    """
    path = folder / _ABOUT
    if not path.exists():
        raise InvalidSpec(
            f"{folder} must have {_ABOUT}, but does not; make the folder with python -m workloads.weights import or"
            " python -m workloads.training.export"
        )
    try:
        return About.model_validate_json(path.read_text())
    except ValidationError as fault:
        raise InvalidSpec(f"{path} does not describe parameters; make the folder again: {fault}") from None


def read(folder: epath.Path, shapes: Tree) -> Tree:
    """Read the parameters with the shapes and shardings of `shapes`. A process reads only the parts on its devices."""
    handler = ocp.StandardCheckpointHandler()
    try:
        return jax.block_until_ready(handler.restore(folder / PARAMETERS, args=ocp.args.StandardRestore(shapes)))
    finally:
        handler.close()


def read_whole(folder: epath.Path, about: About) -> Tree:
    """Read the parameters to the first device.

    Raises:
        InvalidSpec: they differ from what was written.
    """
    parameters = read(folder, whole_shapes(about.model))
    require_written(folder, about, [fingerprints(parameters)])
    return parameters


def require_written(folder: epath.Path, about: About, replicas: Sequence[Fingerprints]) -> None:
    """Check that parameters on each replica are those that were written.

    Raises:
        InvalidSpec: they differ.
    """
    if wrong := differences(about.fingerprints, replicas):
        raise InvalidSpec(f"{folder} differs from what was written: {'; '.join(wrong)}; make the folder again")


def whole_shapes(model: ModelSpec, lora: LoraSpec | None = None) -> Tree:
    """Return shapes of the parameters of `model`, or of its adapters, all on the first device."""
    mesh = Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(AXES)), AXES)
    shapes = jax.eval_shape(lambda: initial_parameters(model, seed=0))
    if lora:
        shapes = jax.eval_shape(lambda: initial_adapters(shapes, lora, seed=0))
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, PartitionSpec())), shapes
    )


def fingerprints(parameters: Tree) -> Fingerprints:
    """Return the fingerprints of parameters that are placed as in `whole_shapes`. They are taken one after the other,
    because each needs as much memory as its array."""
    found: Fingerprints = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path({PARAMETERS: parameters}):
        alone = reduce(lambda tree, step: {step.key: tree}, reversed(path), leaf)
        (one,) = compile_fingerprints(alone)(alone)
        found |= one
    return found

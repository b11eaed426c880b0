"""A folder that holds the parameters of a model and nothing else.

Owns its layout:

    parameters/     Orbax checkpoint: a nested dict of whole float32 arrays
    export.json     which model they are of, fingerprint of each array, where they come from

`export` and `workloads.weights` write such folders; `initial_weights` and `workloads.weights` read them.
"""

import json
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
from workloads.training.fingerprint import Fingerprints, compile_fingerprints, differing
from workloads.training.layout import Tree
from workloads.training.mesh import AXES
from workloads.training.model import initial_parameters

PARAMETERS = "parameters"
"""Their name in the training state, in the checkpoint and in the folder."""

_ABOUT = "export.json"


class About(Spec):
    """What the folder says of its arrays."""

    step: int
    """Optimizer steps that they have behind them; 0 when they were imported."""
    model: ModelSpec
    sequence_length: int
    """Tokens per sequence that they are made for."""
    fingerprints: Fingerprints
    manifest: dict[str, Any]
    """Of the start that trained them, see `runs`, or of the import."""


def require_new(folder: epath.Path) -> None:
    """Refuse to write over anything.

    Raises:
        InvalidSpec: `folder` exists.
    """
    if folder.exists():
        raise InvalidSpec(f"{folder} must be a new folder, but it exists; name another")


def write(folder: epath.Path, parameters: Tree, about: About) -> None:
    """Write the folder; `export.json` comes last, and without it the folder is not finished. Nothing is left of one
    that cannot be finished, since it would be in the way of the next attempt."""
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            checkpointer.save(folder / PARAMETERS, parameters)
        (folder / _ABOUT).write_text(json.dumps(about.model_dump(mode="json"), indent=2) + "\n")
    except BaseException:
        folder.rmtree(missing_ok=True)
        raise


def read_about(folder: epath.Path) -> About:
    """What the parameters in `folder` are.

    Raises:
        InvalidSpec: it is no such folder.
    """
    path = folder / _ABOUT
    if not path.exists():
        raise InvalidSpec(
            f"{folder} must hold {_ABOUT}, but does not; make the folder by python -m workloads.weights import or"
            " python -m workloads.training.export"
        )
    try:
        return About.model_validate_json(path.read_text())
    except ValidationError as fault:
        raise InvalidSpec(f"{path} does not describe parameters, make the folder anew: {fault}") from None


def read(folder: epath.Path, shapes: Tree) -> Tree:
    """The parameters with the shapes and shardings of `shapes`; a process reads what lies on its own devices."""
    handler = ocp.StandardCheckpointHandler()
    try:
        return jax.block_until_ready(handler.restore(folder / PARAMETERS, args=ocp.args.StandardRestore(shapes)))
    finally:
        handler.close()


def read_whole(folder: epath.Path, about: About) -> Tree:
    """The parameters on the first device.

    Raises:
        InvalidSpec: they are not what was written.
    """
    parameters = read(folder, whole_shapes(about.model))
    if wrong := differing(about.fingerprints, [fingerprints(parameters)]):
        raise InvalidSpec(f"{folder} does not hold what was written: {'; '.join(wrong)}; make the folder anew")
    return parameters


def whole_shapes(model: ModelSpec, lora: LoraSpec | None = None) -> Tree:
    """Shapes of the parameters of `model`, or of its adapters, all on the first device."""
    mesh = Mesh(np.array(jax.devices()[:1]).reshape((1,) * len(AXES)), AXES)
    shapes = jax.eval_shape(lambda: initial_parameters(model, seed=0))
    if lora:
        shapes = jax.eval_shape(lambda: initial_adapters(shapes, lora, seed=0))
    return jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, PartitionSpec())), shapes
    )


def fingerprints(parameters: Tree) -> Fingerprints:
    """Of parameters that lie as `whole_shapes` says; one after the other, since each needs its own size in memory."""
    found: Fingerprints = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path({PARAMETERS: parameters}):
        alone = reduce(lambda tree, step: {step.key: tree}, reversed(path), leaf)
        (one,) = compile_fingerprints(alone)(alone)
        found |= one
    return found

"""Converts weights of Hugging Face to a folder that training can begin with, and back.

Both directions need memory for one copy of the parameters in float32.
"""

import json
from collections import defaultdict
from collections.abc import Callable
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from workloads.spec import ModelSpec, Preset
from workloads.training.failures import InvalidSpec
from workloads.training.layout import Tree
from workloads.training.parameter_folder import (
    About,
    fingerprints,
    read_about,
    read_whole,
    require_new,
    whole_shapes,
    write,
)
from workloads.weights.hugging_face import MODEL_TYPES, Config, Tensor, config, config_faults, copies, tensors
from workloads.weights.tensor_files import DType, TensorFiles, read_object, shards, write_index

CONFIG = "config.json"

type Report = Callable[[int, int, str], None]
"""Called with the number of tensors done, the number of all tensors, and the last one's name."""


def import_weights(source: Path, out: epath.Path, name: str, preset: Preset, report: Report) -> About:
    """Write the weights in the folder `source`, of the model of the preset `name`, to the new folder `out`.

    Raises:
        InvalidSpec: the files cannot be read or do not match the preset's model. The message has all errors.
    """
    require_new(out)
    model = preset.model
    wanted = list(tensors(model))
    with TensorFiles(source) as files:
        if wrong := _faults(source, model, wanted, files):
            raise InvalidSpec(f"{source} must have the weights of {name}, but does not: {'; '.join(wrong)}")
        parameters = _parameters(model, wanted, files, report)
    about = About(
        step=0,
        model=model,
        sequence_length=preset.training.sequence_length,
        fingerprints=fingerprints(parameters),
        manifest={"preset": name, "imported_from": str(source)},
    )
    write(out, parameters, about)
    return about


def export_weights(folder: epath.Path, out: epath.Path, dtype: DType, report: Report) -> ModelSpec:
    """Write the parameters in `folder` to the new folder `out` in the layout of Hugging Face.

    Raises:
        InvalidSpec: `folder` has no parameters, or they differ from those that were written.
    """
    require_new(out)
    about = read_about(folder)
    parameters = jax.tree.map(np.asarray, read_whole(folder, about))
    wanted = list(tensors(about.model))
    files = shards(wanted, dtype)
    done = 0
    out.mkdir(parents=True)
    for shard in files:
        with (out / shard.name).open("wb") as file:
            shard.begin(file)
            for tensor in shard.tensors:
                array = reduce(getitem, tensor.array, parameters)
                values = tensor.take(array).astype(jnp.dtype(dtype))
                file.write(np.ascontiguousarray(values).view(np.uint8).data)
                done += 1
                report(done, len(wanted), tensor.name)
    (out / CONFIG).write_text(json.dumps(config(about.model, about.sequence_length, dtype), indent=2) + "\n")
    write_index(out, files)
    return about.model


def _faults(source: Path, model: ModelSpec, wanted: list[Tensor], files: TensorFiles) -> list[str]:
    """Return all errors of the folder and what to do about them. Empty if it has the `wanted` tensors."""
    unreadable, path = list(files.unreadable), source / CONFIG
    said: Config = {}
    try:
        said = read_object(path) if path.exists() else {}
    except InvalidSpec as fault:
        unreadable.append(str(fault))
    # If files are missing, the missing tensors cannot be listed.
    differing = [*config_faults(said, model), *([] if files.unreadable else files.faults(wanted, copies(model)))]
    if differing and said.get("model_type") not in (None, *MODEL_TYPES):
        differing.append(f"choose weights of a model of type {', '.join(MODEL_TYPES)}; no others can be imported")
    elif differing:
        differing.append("choose the preset that these weights belong to")
    return [*unreadable, *differing]


def _parameters(model: ModelSpec, wanted: list[Tensor], files: TensorFiles, report: Report) -> Tree:
    """Return the trainer's arrays. They are filled one after the other, so that at most one is in memory twice."""
    of_array: defaultdict[tuple[str, ...], list[Tensor]] = defaultdict(list)
    for tensor in wanted:
        of_array[tensor.array].append(tensor)
    done = 0

    def filled(path: tuple[Any, ...], shape: jax.ShapeDtypeStruct) -> jax.Array:
        nonlocal done
        array = np.empty(shape.shape, shape.dtype)
        for tensor in of_array[tuple(step.key for step in path)]:
            tensor.put(array, files.read(tensor.name))
            done += 1
            report(done, len(wanted), tensor.name)
        return jax.device_put(array, shape.sharding)

    return jax.tree_util.tree_map_with_path(filled, whole_shapes(model))

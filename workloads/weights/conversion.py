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
from workloads.weights.configuration import CONFIG, Described, config, config_faults, described, unsupported
from workloads.weights.families import Config, Tensor, copies, tensors
from workloads.weights.tensor_files import DType, TensorFiles, read_object, shards, write_index

type NamedPreset = tuple[str, Preset]
"""A preset and its name."""

type Report = Callable[[int, int, str], None]
"""Called with the number of tensors done, the number of all tensors, and the last one's name."""


def import_weights(source: Path, out: epath.Path, preset: NamedPreset | None, report: Report) -> About:
    """Write the weights in the folder `source` to the new folder `out`.

    Their model is that of the folder's `config.json`. If a preset is given, they must have its model, and the folder
    may lack a `config.json`.

    Raises:
        InvalidSpec: parts of the model are not supported, or the files cannot be read or differ from the model. The
            message has all errors.
    """
    require_new(out)
    found, expected, faults = _described(source, preset)
    with TensorFiles(source) as files:
        faults += files.unreadable
        if expected:
            faults += _differences(found, expected.model, files, preset)
        if faults or not expected:
            model = preset[0] if preset else f"its {CONFIG}"
            raise InvalidSpec(f"{source} must have the weights of {model}, but does not: {'; '.join(faults)}")
        parameters = _parameters(expected.model, files, report)
    about = About(
        step=0,
        model=expected.model,
        sequence_length=expected.sequence_length,
        fingerprints=fingerprints(parameters),
        manifest={"imported_from": str(source), **({"preset": preset[0]} if preset else {})},
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


def _described(source: Path, preset: NamedPreset | None) -> tuple[Config, Described | None, list[str]]:
    """Return the `config.json` of a folder, the model that its weights must have, and errors of the file.

    Raises:
        InvalidSpec: parts of the model are not supported. Then no other file matters.
    """
    path, expected = source / CONFIG, None
    if preset:
        expected = Described(model=preset[1].model, sequence_length=preset[1].training.sequence_length)
        if not path.exists():
            return {}, expected, []
    try:
        found = read_object(path)
    except InvalidSpec as fault:
        return {}, expected, [str(fault)]
    if parts := unsupported(found):
        raise InvalidSpec(f"{path} has a model that cannot be imported: {'; '.join(parts)}; choose another model")
    try:
        return found, expected or described(found), []
    except InvalidSpec as fault:
        return found, None, [str(fault)]


def _differences(found: Config, model: ModelSpec, files: TensorFiles, preset: NamedPreset | None) -> list[str]:
    """Return all differences between a folder and `model`, and what to do about them."""
    # If files are missing, the missing tensors cannot be listed.
    wrong = [] if files.unreadable else files.faults([*tensors(model)], copies(model))
    wrong = [*config_faults(found, model), *wrong]
    advice = "choose the preset that these weights belong to" if preset else "download the whole folder again"
    return [*wrong, advice] if wrong else []


def _parameters(model: ModelSpec, files: TensorFiles, report: Report) -> Tree:
    """Return the trainer's arrays. They are filled one after the other, so that at most one is in memory twice."""
    wanted = list(tensors(model))
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

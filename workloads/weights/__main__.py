"""`python -m workloads.weights`: weights from and to the safetensors files of Hugging Face.

Owns the command line. Input of `import` is local; all other folders may be local or `gs://`.
"""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import jax
import yaml
from etils import epath
from pydantic import ValidationError

from workloads.spec import ModelSpec, Preset, load_preset, preset_names
from workloads.training.failures import InvalidSpec, TrainingStopped
from workloads.training.flops import total_parameters
from workloads.weights.conversion import export_weights, import_weights
from workloads.weights.tensor_files import DType

_REPORT_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; 0 when it is done, else the exit code of the cause."""
    options = _parser().parse_args(arguments)
    # Chips, if there are any, may be busy training.
    jax.config.update("jax_platforms", "cpu")
    # It warns at every call that it found no default credentials; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        print(options.command(options))
    except TrainingStopped as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.weights", description="Weights from and to the safetensors files of Hugging Face."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    importing = commands.add_parser("import", help="make a folder that training can begin with")
    importing.add_argument("source", type=Path, metavar="SAFETENSORS_FOLDER", help="local folder with *.safetensors")
    importing.add_argument("out", type=epath.Path, metavar="OUT", help="new folder, local or gs://")
    importing.add_argument("--preset", required=True, choices=preset_names(), help="whose model the weights are of")
    importing.add_argument(
        "--model", type=Path, metavar="FILE", help="YAML file of what the job's section `model` changes of the preset"
    )
    importing.set_defaults(command=_import)
    exporting = commands.add_parser("export", help="make a folder that transformers can load")
    exporting.add_argument(
        "folder", type=epath.Path, metavar="EXPORTED_FOLDER", help="what workloads.training.export or import made"
    )
    exporting.add_argument("out", type=epath.Path, metavar="OUT", help="new folder, local or gs://")
    exporting.add_argument(
        "--dtype", choices=get_args(DType), default="float32", help="of the written values; float32 is exact"
    )
    exporting.set_defaults(command=_export)
    return parser


def _import(options: argparse.Namespace) -> str:
    preset = load_preset(options.preset)
    if options.model:
        preset = preset.model_copy(update={"model": _changed(preset, options.model)})
    about = import_weights(options.source, options.out, options.preset, preset, _Report())
    return f"{options.out}: {total_parameters(about.model):,} weights of {options.preset}"


def _changed(preset: Preset, file: Path) -> ModelSpec:
    try:
        return preset.model_with(yaml.safe_load(file.read_text()))
    except ValidationError as error:
        wrong = [f"{'.'.join(map(str, one['loc']))}: {one['msg']}".lstrip(": ") for one in error.errors()]
        raise InvalidSpec(f"{file} does not describe a model: {'; '.join(wrong)}") from None
    except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
        raise InvalidSpec(f"{file} must be a YAML mapping of settings of a model: {error}") from None


def _export(options: argparse.Namespace) -> str:
    model = export_weights(options.folder, options.out, options.dtype, _Report())
    return f"{options.out}: {total_parameters(model):,} weights, {options.dtype}"


class _Report:
    """Progress on stderr, now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        now = time.monotonic()
        if now - self._last >= _REPORT_SECONDS:
            self._last = now
            print(f"tensor {done}/{total} {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

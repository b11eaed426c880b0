"""Implements `python -m workloads.weights`, which converts weights from and to safetensors files of Hugging Face.

The input of `import` is local. All other folders may be local or `gs://`.
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

from workloads.spec import ModelSpec, load_preset, preset_names
from workloads.spec.model import total_parameters
from workloads.training.failures import TrainingStopped
from workloads.training.parameter_folder import named_folder
from workloads.weights.conversion import export_weights, import_weights
from workloads.weights.tensor_files import DType

_REPORT_SECONDS = 2.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    options = _parser().parse_args(arguments)
    # Chips of this machine may be busy with training.
    jax.config.update("jax_platforms", "cpu")
    # gcsfs warns at every call that it found no default credentials. Real failures are raised anyway.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        print(options.command(options))
    except TrainingStopped as stop:
        print(f"error: {stop}", file=sys.stderr)
        return stop.code
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m workloads.weights", description="Convert weights from and to safetensors files of Hugging Face."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    importing = commands.add_parser("import", help="make a folder that training can begin with")
    importing.add_argument(
        "source", type=Path, metavar="SAFETENSORS_FOLDER", help="local folder with *.safetensors and config.json"
    )
    importing.add_argument("out", type=named_folder, metavar="OUT", help="new folder, local or gs://")
    importing.add_argument("--preset", choices=preset_names(), help="preset whose model the weights must have")
    importing.set_defaults(command=_import)
    exporting = commands.add_parser("export", help="make a folder that transformers can load")
    exporting.add_argument(
        "folder",
        type=named_folder,
        metavar="EXPORTED_FOLDER",
        help="output of workloads.training.export or import",
    )
    exporting.add_argument("out", type=named_folder, metavar="OUT", help="new folder, local or gs://")
    exporting.add_argument(
        "--dtype",
        choices=get_args(DType),
        default="float32",
        help="type of the written values; float32 is exact",
    )
    exporting.set_defaults(command=_export)
    return parser


def _import(options: argparse.Namespace) -> str:
    preset = (options.preset, load_preset(options.preset)) if options.preset else None
    model = import_weights(options.source, options.out, preset, _Report()).model
    dumped = model.model_dump(mode="json")
    # Fields that a dump leaves out are there too, because the section may replace the model of any preset.
    section = {name: dumped.get(name, field.default) for name, field in ModelSpec.model_fields.items()}
    text = yaml.safe_dump({"model": section}, sort_keys=False)
    return f"# {options.out}: {total_parameters(model):,} weights of this model\n{text.rstrip()}"


def _export(options: argparse.Namespace) -> str:
    model = export_weights(options.folder, options.out, options.dtype, _Report())
    return f"{options.out}: {total_parameters(model):,} weights, {options.dtype}"


class _Report:
    """Prints progress to stderr at intervals."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, done: int, total: int, name: str) -> None:
        now = time.monotonic()
        if now - self._last >= _REPORT_SECONDS:
            self._last = now
            print(f"tensor {done}/{total} {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())

"""Implements `python -m workloads.training.export`, which writes only the parameters of a checkpoint to a folder.

The layout of the folder is in `parameter_folder`. The command runs in one process on any machine with memory for the
parameters. Adapters are merged into the weights that they were trained for. It only reads the run, which may be
training at the same time.
"""

import argparse
import logging
import sys

import jax
import orbax.checkpoint as ocp
from etils import epath

from workloads.spec import JobSpec
from workloads.training.adapters import merge_adapters
from workloads.training.checkpoint import STATE, Record, read_record
from workloads.training.failures import InvalidSpec, NoCheckpoint, TrainingStopped
from workloads.training.fingerprint import differences
from workloads.training.layout import Tree
from workloads.training.parameter_folder import (
    PARAMETERS,
    About,
    fingerprints,
    named_folder,
    read_about,
    read_whole,
    require_new,
    whole_shapes,
    write,
)
from workloads.training.runs import recorded_spec


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.training.export",
        description="Write the parameters of a checkpoint to a new folder, without the state of the optimizer.",
    )
    parser.add_argument("run", type=named_folder, help="folder of a run: STORAGE/runs/RUN, local or gs://")
    parser.add_argument("out", type=named_folder, help="new folder for the parameters, local or gs://")
    parser.add_argument("--step", type=int, help="step of the checkpoint (default: the newest)")
    parser.add_argument(
        "--initial-weights",
        type=named_folder,
        metavar="FOLDER",
        help="folder of the weights that the run's adapters are for, if it was moved",
    )
    arguments = parser.parse_args()
    # Chips of this machine may be busy with training, and JAX would wait for their other hosts.
    jax.config.update("jax_platforms", "cpu")
    # gcsfs warns at every call that it found no default credentials. Real failures are raised anyway.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        step = export(arguments.run, arguments.out, arguments.step, arguments.initial_weights)
    except TrainingStopped as stop:
        print(f"stopped: {stop}", file=sys.stderr)
        sys.exit(stop.code)
    print(f"parameters after step {step} written to {arguments.out}")


def export(run: epath.Path, out: epath.Path, step: int | None, initial_weights: epath.Path | None = None) -> int:
    """Write the parameters after `step`, or of the newest checkpoint, to `out`. Return the step.

    Adapters are merged into the weights in the folder `initial_weights`, by default the job's folder.

    Raises:
        InvalidSpec: `out` exists, there is no such checkpoint, or its adapters are for other weights.
        NoCheckpoint: the checkpoint is damaged.
    """
    require_new(out)
    step = _existing(run, step)
    folder = run / "checkpoints" / str(step)
    record = read_record(folder)
    expected = {name: one for name, one in record.fingerprints.items() if name.startswith(f"{PARAMETERS}.")}
    spec = recorded_spec(record.manifest)
    shapes = {PARAMETERS: whole_shapes(spec.model, spec.training.lora)}
    restore = ocp.args.PyTreeRestore(
        item=shapes, partial_restore=True, restore_args=ocp.checkpoint_utils.construct_restore_args(shapes)
    )
    parameters = ocp.PyTreeCheckpointHandler().restore(folder / STATE, args=restore)[PARAMETERS]
    if wrong := differences(expected, [fingerprints(parameters)]):
        raise NoCheckpoint(f"{folder} differs from what was saved: {'; '.join(wrong)}; choose another with --step")
    if spec.training.lora:
        parameters = _merge(parameters, spec, record, initial_weights)
        expected = fingerprints(parameters)
    about = About(
        step=step,
        model=spec.model,
        sequence_length=spec.training.sequence_length,
        fingerprints=expected,
        manifest=record.manifest,
    )
    write(out, parameters, about)
    return step


def _merge(adapters: Tree, spec: JobSpec, record: Record, given: epath.Path | None) -> Tree:
    assert spec.training.lora, "only adapters are merged"
    assert spec.initial_weights, "the specification refuses adapters without weights"
    folder = given or epath.Path(spec.initial_weights)
    about = read_about(folder)
    expected, got = record.manifest["frozen_weights"], about.digest
    if got != expected:
        raise InvalidSpec(
            f"{folder} must have the weights that the adapters were trained for, with the digest {expected}, got"
            f" {got}; give their folder with --initial-weights"
        )
    return merge_adapters(read_whole(folder, about), adapters, spec.training.lora)


def _existing(run: epath.Path, step: int | None) -> int:
    folder = run / "checkpoints"
    options = ocp.CheckpointManagerOptions(read_only=True)
    steps = sorted(ocp.CheckpointManager(folder, options=options).all_steps()) if folder.exists() else []
    if not steps or step not in (None, *steps):
        raise InvalidSpec(f"{folder} must have the checkpoint to export (step {step}), got {steps}")
    return steps[-1] if step is None else step


if __name__ == "__main__":
    main()

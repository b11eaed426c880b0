"""`python -m workloads.training.export`: the parameters of one checkpoint alone, in a folder.

Owns the command and the layout of that folder:

    parameters/     Orbax checkpoint: a nested dict of whole float32 arrays
    export.json     step, fingerprint of each array, manifest of the start that saved it

Runs in one process on any machine with memory for the parameters. Only reads the run, which may go on meanwhile.
"""

import argparse
import json
import logging
import sys

import jax
import orbax.checkpoint as ocp
from etils import epath
from jax.sharding import NamedSharding

from workloads.spec import JobSpec, MeshSpec
from workloads.training.checkpoint import STATE, Record, read_record
from workloads.training.failures import InvalidSpec, NoCheckpoint, TrainingStopped
from workloads.training.fingerprint import compile_fingerprints, differing
from workloads.training.layout import Tree, partition_specs
from workloads.training.mesh import build_mesh
from workloads.training.model import initial_parameters

PARAMETERS = "parameters"
"""Their name in the training state, in the checkpoint and in the export."""


def main() -> None:
    """Export what the arguments name."""
    parser = argparse.ArgumentParser(
        prog="python -m workloads.training.export",
        description="Write the parameters of a checkpoint to a new folder, without the state of the optimizer.",
    )
    parser.add_argument("run", type=epath.Path, help="folder of a run: STORAGE/runs/RUN, local or gs://")
    parser.add_argument("out", type=epath.Path, help="new folder for the parameters, local or gs://")
    parser.add_argument("--step", type=int, help="step of the checkpoint; the newest when missing")
    arguments = parser.parse_args()
    # Chips, if there are any, may be busy training, and their other hosts would be waited for.
    jax.config.update("jax_platforms", "cpu")
    # It warns at every call that it found no default credentials; what it cannot do, it raises.
    logging.getLogger("gcsfs").setLevel(logging.ERROR)
    try:
        step = export(arguments.run, arguments.out, arguments.step)
    except TrainingStopped as stop:
        print(f"stopped: {stop}", file=sys.stderr)
        sys.exit(stop.code)
    print(f"parameters after step {step} written to {arguments.out}")


def export(run: epath.Path, out: epath.Path, step: int | None) -> int:
    """Write the parameters after `step`, or of the newest checkpoint, to `out`; returns the step.

    Raises:
        InvalidSpec: `out` exists, or there is no such checkpoint.
        NoCheckpoint: the checkpoint is damaged.
    """
    if out.exists():
        raise InvalidSpec(f"{out} must be a new folder, but it exists; name another")
    step = _existing(run, step)
    folder = run / "checkpoints" / str(step)
    record = read_record(folder)
    fingerprints = {name: one for name, one in record.fingerprints.items() if name.startswith(f"{PARAMETERS}.")}
    shapes = {PARAMETERS: _shapes(record)}
    restore = ocp.args.PyTreeRestore(
        item=shapes, partial_restore=True, restore_args=ocp.checkpoint_utils.construct_restore_args(shapes)
    )
    found = ocp.PyTreeCheckpointHandler().restore(folder / STATE, args=restore)
    if wrong := differing(fingerprints, compile_fingerprints(shapes)(found)):
        raise NoCheckpoint(f"{folder} does not hold what was saved: {'; '.join(wrong)}; choose another by --step")
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(out / PARAMETERS, found[PARAMETERS])
    about = {"step": step, "fingerprints": fingerprints, "manifest": record.manifest}
    (out / "export.json").write_text(json.dumps(about, indent=2) + "\n")
    return step


def _existing(run: epath.Path, step: int | None) -> int:
    folder = run / "checkpoints"
    options = ocp.CheckpointManagerOptions(read_only=True)
    steps = sorted(ocp.CheckpointManager(folder, options=options).all_steps()) if folder.exists() else []
    if not steps or step not in (None, *steps):
        raise InvalidSpec(f"{folder} must have the checkpoint that is to be exported (step {step}), got {steps}")
    return steps[-1] if step is None else step


def _shapes(record: Record) -> Tree:
    """Of the parameters, whole on one device."""
    spec = JobSpec.model_validate(record.manifest["spec"])
    mesh = build_mesh(MeshSpec(replica=1, fsdp=1), spec.slices, jax.devices()[:1])
    shapes = jax.eval_shape(lambda: initial_parameters(spec.model, spec.training.seed))
    return jax.tree.map(
        lambda leaf, split: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=NamedSharding(mesh, split)),
        shapes,
        partition_specs(shapes),
    )


if __name__ == "__main__":
    main()

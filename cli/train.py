"""`make train`: the trainer as slices x hosts processes on this machine, without a cluster.

Owns the command line and what people see. The processes are `cli.hosts`; the trainer is the one that the
image ships.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cli.hosts import Hosts, start_hosts
from workloads.progress import RunStarted, RunSummary, StepProgress
from workloads.spec import (
    DataSpec,
    ExitCode,
    JobSpec,
    MeshSpec,
    Preset,
    SliceSpec,
    StorageSpec,
    TokenFileSpec,
    TrainingSpec,
    cause_order,
    load_preset,
    preset_names,
)
from workloads.terminal import Terminal

CHECKOUT = Path(__file__).resolve().parent.parent

STOP_GRACE_SECONDS = 20.0
"""On Ctrl-C the hosts get this long to save their state."""

LOG_TAIL_LINES = 15


@dataclass
class Seen:
    """What the leader has reported so far."""

    first_step_seconds: float | None = None
    step: StepProgress | None = None
    summary: RunSummary | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        spec = job_spec(options)
    except ValidationError as fault:
        parser.error("; ".join(error["msg"] for error in fault.errors()))
    except ValueError as fault:
        parser.error(str(fault))
    console = Terminal(highlight=False)
    console.print(_plan(spec), soft_wrap=True)
    began = time.monotonic()
    logs = options.storage / "logs"
    run_id = datetime.now().strftime("%Y%m%d-%H%M%S")
    with start_hosts(spec, run_id, 0, logs, {}) as hosts:
        try:
            seen = _show(hosts, spec, console, began)
        except KeyboardInterrupt:
            console.print("stopping; the hosts save their state first")
            hosts.stop(STOP_GRACE_SECONDS)
            console.print("go on with: make train")
            return 130
        failure = _failure(hosts, options.storage / "failures" / run_id) if hosts.failed() else None
    console.print(failure or _summary(seen, spec), markup=False, soft_wrap=True)
    return 1 if failure else 0


def job_spec(options: argparse.Namespace) -> JobSpec:
    """The job that the command line asks for.

    Raises:
        ValueError: no such preset, no data, or sizes that do not fit together.
    """
    preset = load_preset(options.preset)
    return JobSpec(
        name="train",
        preset=options.preset,
        slices=SliceSpec.of_cpu(options.slices, options.hosts, options.chips),
        mesh=options.mesh or MeshSpec(replica=options.slices, fsdp=options.hosts * options.chips),
        model=preset.model,
        data=_data(options, preset),
        optimizer=preset.optimizer,
        training=_training(options, preset),
        storage=StorageSpec(path=str(options.storage.resolve()), existing_run=options.existing_run),
        initial_weights=None if options.initial_weights is None else _absolute(options.initial_weights),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m cli.train", description=__doc__)
    parser.add_argument("--preset", default="tiny", help=f"job to train: {', '.join(preset_names())} (%(default)s)")
    parser.add_argument(
        "--data", metavar="FOLDER", help="token folder made by workloads.data prepare, instead of the preset's data"
    )
    parser.add_argument(
        "--held-out-fraction", type=float, default=0.05, help="share of --data kept for evaluation (%(default)s)"
    )
    parser.add_argument(
        "--initial-weights", metavar="FOLDER", help="begin with weights that workloads.weights import or an export made"
    )
    parser.add_argument("--steps", type=_positive, help="optimizer steps, instead of the preset's")
    parser.add_argument("--slices", type=_positive, default=2, help="TPU slices (%(default)s)")
    parser.add_argument("--hosts", type=_positive, default=2, help="hosts per slice, one process each (%(default)s)")
    parser.add_argument("--chips", type=_positive, default=4, help="chips per host, CPU devices here (%(default)s)")
    parser.add_argument(
        "--mesh",
        type=_mesh,
        metavar="AXIS=SIZE,...",
        help="of replica, stage, fsdp and tensor (a replica on each slice, fsdp within it)",
    )
    parser.add_argument(
        "--storage", type=Path, default=CHECKOUT / ".sandbox" / "train", help="folder for checkpoints (%(default)s)"
    )
    parser.add_argument(
        "--existing-run",
        choices=("resume", "anew"),
        default="resume",
        help="go on with the run in storage, or begin a new one beside it (%(default)s)",
    )
    return parser


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"must be a whole number above 0, got {text!r}")
    return int(text)


def _mesh(text: str) -> MeshSpec:
    given = [axis.split("=") for axis in text.split(",")]
    try:
        sizes = dict(given)
        if len(sizes) < len(given):
            raise ValueError("of an axis given twice, a dict keeps the last")
        return MeshSpec.model_validate({"replica": 1, "fsdp": 1} | {axis: int(size) for axis, size in sizes.items()})
    except ValueError:
        axes = ", ".join(MeshSpec.model_fields)
        raise argparse.ArgumentTypeError(
            f"must be AXIS=SIZE,... of the axes {axes}, each at most once, got {text!r}"
        ) from None


def _data(options: argparse.Namespace, preset: Preset) -> DataSpec:
    if options.data is not None:
        fraction = options.held_out_fraction
        return TokenFileSpec(source="token-file", path=_absolute(options.data), held_out_fraction=fraction)
    if preset.data is None:
        raise ValueError(
            f"--data must name a token folder, since the preset {options.preset} has no data of its own;"
            " make one by python -m workloads.data prepare"
        )
    return preset.data


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())


def _training(options: argparse.Namespace, preset: Preset) -> TrainingSpec:
    changes: dict[str, object] = {} if options.steps is None else {"steps": options.steps}
    if options.mesh and options.mesh.stage > 1:
        # The one way that a pipeline can have, and no preset asks for it.
        changes["gather_weights"] = "each-step"
    return preset.training.model_copy(update=changes)


def _plan(spec: JobSpec) -> str:
    slices = spec.slices
    return (
        f"{spec.preset}: {slices.count} slices x {slices.hosts} hosts x {slices.devices_per_host} CPU devices,"
        f" {slices.count * slices.hosts} processes, {spec.training.steps} steps of {spec.training.global_batch}"
        f" x {spec.training.sequence_length} tokens"
    )


def _show(hosts: Hosts, spec: JobSpec, console: Console, began: float) -> Seen:
    seen = Seen()
    columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("joining hosts, compiling", total=spec.training.steps)
        for line in _without_noise(hosts.follow()):
            seen.summary = RunSummary.parse(line) or seen.summary
            if started := RunStarted.parse(line):
                progress.update(bar, completed=started.step)
            if step := StepProgress.parse(line):
                seen.step = step
                seen.first_step_seconds = seen.first_step_seconds or time.monotonic() - began
                description = f"loss {step.loss:.4f}  {step.tokens_per_second:.0f} tokens/s"
                progress.update(bar, completed=step.step, description=description)
            if not step or not console.is_terminal:
                progress.console.print(line, markup=False, soft_wrap=True)
    return seen


def _without_noise(lines: Iterator[str]) -> Iterator[str]:
    """Gloo prints a line for every group of processes it connects."""
    return (line for line in lines if not line.startswith("[Gloo]"))


def _failure(hosts: Hosts, records: Path) -> str:
    """The failure record of the host where it happened, or else the end of a host that left none."""
    written = [json.loads(path.read_text()) for path in records.glob("*.json")]
    first = min(written, key=lambda record: cause_order(record["code"], record["time"]), default=None)
    # Hosts that lose a peer abort (SIGABRT); the one with another code says why.
    failed = sorted(hosts.failed(), key=lambda host: host.process.returncode < 0)
    cause = next((host for host in hosts.all if first and host.address == first["host"]), *failed[:1])
    code = first["code"] if first else cause.process.returncode
    name = ExitCode(code).name if code in list(ExitCode) else "killed or aborted"
    why = f": {first['cause'].splitlines()[0]}" if first else ""
    tail = cause.log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    ended = f"host {cause.address} ended with exit code {code} ({name}){why}"
    return "\n".join([ended, f"end of {cause.log}:", *tail])


def _summary(seen: Seen, spec: JobSpec) -> str:
    lines: list[str] = []
    if seen.step and seen.first_step_seconds:
        lines += [f"final loss           {seen.step.loss:.4f}", f"time to first step   {seen.first_step_seconds:.1f} s"]
    if seen.summary:
        lines += [
            f"evaluation loss      {seen.summary.evaluation_loss:.4f}",
            f"checkpoints          {spec.storage.path}/runs/{seen.summary.run}/checkpoints",
        ]
    more = 2 * spec.training.steps
    return "\n".join(
        [
            *lines,
            f"next: python -m cli.train --steps {more}              train on from here",
            f"      python -m workloads.training report {spec.storage.path}",
            "      python -m cli.train --existing-run anew     a new run beside it",
            "      make up                                     the same job on a cluster of this machine",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())

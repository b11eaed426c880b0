"""`make train` runs the trainer of the image on this machine, as slices x hosts processes without a cluster."""

import json
import signal
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import TypeAdapter, ValidationError
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cli.answer import INTERRUPTED, Halt, exit_status
from cli.hosts import Hosts, start_hosts
from workloads.progress import RunStarted, RunSummary, StepProgress
from workloads.spec import (
    DataSpec,
    ExistingRun,
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

STORAGE = Path(__file__).resolve().parent.parent / ".sandbox" / "train"

STOP_GRACE_SECONDS = 20.0
"""Time that the hosts have to save their state after Ctrl-C."""

LOG_TAIL_LINES = 15
_LOST_A_PEER = (-signal.SIGABRT, ExitCode.PEER_LOST)
"""Return codes of a process that JAX aborted, or that ended itself, because it lost another one."""


@dataclass
class Seen:
    """Reports of the leader so far."""

    first_step_seconds: float | None = None
    step: StepProgress | None = None
    summary: RunSummary | None = None


def train(spec: JobSpec, storage: Path, console: Console) -> int:
    """Train a job in processes on this machine and return the exit status."""
    slices, training = spec.slices, spec.training
    console.print(
        f"{spec.preset}: {slices.count} slices x {slices.hosts} hosts x {slices.devices_per_host} CPU devices,"
        f" {slices.count * slices.hosts} processes, {training.steps} steps of {training.global_batch}"
        f" x {training.sequence_length} tokens",
        soft_wrap=True,
    )
    began = time.monotonic()
    run_id = datetime.now().strftime("%Y%m%d-%H%M%S")
    with start_hosts(spec, run_id, 0, storage / "logs", {}) as hosts:
        try:
            seen = _show(hosts, spec, console, began)
        except KeyboardInterrupt:
            console.print("stopping; the hosts are saving their state")
            hosts.stop(STOP_GRACE_SECONDS)
            console.print("continue with: make train")
            return INTERRUPTED
        failure = failure_of(hosts, storage / "failures" / run_id) if hosts.failed() else None
    console.print(failure or _summary(seen, spec), markup=False, soft_wrap=True)
    return 1 if failure else 0


def _mesh(text: str) -> MeshSpec:
    given = [axis.split("=") for axis in text.split(",")]
    try:
        sizes = dict(given)
        if len(sizes) < len(given):
            raise ValueError("a dict would keep only the last value of an axis that is given twice")
        return MeshSpec.model_validate({"replica": 1, "fsdp": 1} | {axis: int(size) for axis, size in sizes.items()})
    except ValueError:
        axes = ", ".join(MeshSpec.model_fields)
        raise typer.BadParameter(f"must be AXIS=SIZE,... with each axis of {axes} at most once, got {text!r}") from None


def _data(name: str, preset: Preset, folder: str | None, held_out_fraction: float) -> DataSpec:
    if folder is not None:
        return TokenFileSpec(source="token-file", path=_absolute(folder), held_out_fraction=held_out_fraction)
    if preset.data is None:
        raise ValueError(
            f"--data must name a token folder, because the preset {name} has no data;"
            " create one with python -m workloads.data prepare"
        )
    return preset.data


def _absolute(path: str) -> str:
    return path if "://" in path else str(Path(path).resolve())


def _training(preset: Preset, steps: int | None, mesh: MeshSpec | None) -> TrainingSpec:
    changes: dict[str, object] = {} if steps is None else {"steps": steps}
    if mesh and mesh.stage > 1:
        # A pipeline supports only this value, and no preset has it.
        changes["gather_weights"] = "each-step"
    return preset.training.model_copy(update=changes)


def _show(hosts: Hosts, spec: JobSpec, console: Console, began: float) -> Seen:
    seen = Seen()
    columns = (TextColumn("step {task.completed}/{task.total}"), BarColumn(), TextColumn("{task.description}"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        bar = progress.add_task("joining hosts, compiling", total=spec.training.steps)
        # Gloo prints a line for every group of processes that it connects.
        for line in (line for line in hosts.follow() if not line.startswith("[Gloo]")):
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


def failure_of(hosts: Hosts, records: Path) -> str:
    """Return the failure record of the host that failed first, or the exit of a host that left no record."""
    written = [json.loads(path.read_text()) for path in records.glob("*.json")]
    first = min(written, key=lambda record: cause_order(record["code"], record["time"]), default=None)
    # Hosts that lose a peer abort with SIGABRT. A host with another code has the cause, with or without a record.
    failed = sorted(hosts.failed(), key=lambda host: host.process.returncode in _LOST_A_PEER)
    silent = [host for host in failed if host.address not in {record["host"] for record in written}]
    if first and first["code"] == ExitCode.PEER_LOST and silent and silent[0].process.returncode not in _LOST_A_PEER:
        first, failed = None, silent
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
    lines += [
        f'next: make train ARGS="--steps {2 * spec.training.steps}"             continue this run',
        f"      .venv/bin/python -m workloads.training report {spec.storage.path}",
        '      make train ARGS="--existing-run new"     start a new run',
        "      make up                                  the same job on a cluster of this machine",
    ]
    return "\n".join(lines)


app = typer.Typer(pretty_exceptions_enable=False, add_completion=False)

_Data = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Token folder from workloads.data prepare. Default: the preset's data."),
]
_Weights = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Initial weights, from workloads.weights import or an export.")
]


def _existing_run(word: str) -> Any:
    try:
        return TypeAdapter(ExistingRun).validate_python(word)
    except ValidationError:
        raise typer.BadParameter(f"{word!r} is not one of 'resume', 'new'.") from None


_Mesh = Annotated[
    MeshSpec | None,
    typer.Option(
        parser=_mesh,
        metavar="AXIS=SIZE,...",
        help="Sizes of the axes replica, stage, fsdp and tensor. Default: one replica per slice, with fsdp within it.",
    ),
]


@app.command()
def main(
    preset: Annotated[str, typer.Option(help=f"Preset to train: {', '.join(preset_names())}.")] = "tiny",
    data: _Data = None,
    held_out_fraction: Annotated[float, typer.Option(help="Share of --data to keep for evaluation.")] = 0.05,
    initial_weights: _Weights = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Number of optimizer steps. Default: that of the preset.")
    ] = None,
    slices: Annotated[int, typer.Option(min=1, help="Number of slices.")] = 2,
    hosts: Annotated[int, typer.Option(min=1, help="Number of hosts per slice. Each is one process.")] = 2,
    chips: Annotated[int, typer.Option(min=1, help="Number of chips per host. Each is a CPU device here.")] = 4,
    mesh: _Mesh = None,
    storage: Annotated[Path, typer.Option(metavar="DIR", help="Folder for checkpoints.")] = STORAGE,
    existing_run: Annotated[
        ExistingRun,
        typer.Option(
            metavar="resume|new", parser=_existing_run, help="Resume the run in the storage, or start a new one."
        ),
    ] = "resume",
) -> None:
    """Run the trainer as slices x hosts processes on this machine, without a cluster."""

    def answer() -> int:
        try:
            known = load_preset(preset)
            spec = JobSpec(
                name="train",
                preset=preset,
                slices=SliceSpec.of_cpu(slices, hosts, chips),
                mesh=mesh or MeshSpec(replica=slices, fsdp=hosts * chips),
                model=known.model,
                data=_data(preset, known, data, held_out_fraction),
                optimizer=known.optimizer,
                training=_training(known, steps, mesh),
                storage=StorageSpec(path=str(storage.resolve()), existing_run=existing_run),
                initial_weights=None if initial_weights is None else _absolute(initial_weights),
            )
        except ValidationError as error:
            raise Halt("; ".join(each["msg"] for each in error.errors())) from None
        except ValueError as error:
            raise Halt(str(error)) from None
        return train(spec, storage, Terminal(highlight=False))

    raise typer.Exit(exit_status(answer))


if __name__ == "__main__":
    app(prog_name="python -m cli.train")

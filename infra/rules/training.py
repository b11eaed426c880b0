"""Rules of training jobs: do preset, data and sizes go together, and fit the slices."""

from collections.abc import Collection, Iterator

from pydantic import ValidationError

from infra import job_spec
from infra.accelerators import SliceShape
from infra.faults import Fault, expectation, from_validation, nearest
from infra.jobs import TrainingJob
from infra.rules.draft import DraftJob, listed
from workloads.spec import (
    WANDB_KEY_VARIABLE,
    ModelSpec,
    OptimizerSpec,
    Preset,
    TokenFileSpec,
    TrainingSpec,
    load_preset,
    preset_names,
)

_ANY_DATA = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)


def preset_named(entry: DraftJob) -> Iterator[Fault]:
    """Faults of the preset's name, also when something else of the job could not be read."""
    preset = entry.written.get("preset")
    if isinstance(preset, str) and preset not in preset_names():
        known = f"one of the presets {', '.join(preset_names())}"
        yield Fault(f"{entry.path}.preset", known, repr(preset), "rename it", nearest(preset, preset_names()))


def check(path: str, job: TrainingJob, shape: SliceShape | None, secrets: Collection[str]) -> Iterator[Fault]:
    """Faults of one job, on slices of `shape` where that is known, in a stack with secrets of these names."""
    if job.preset in preset_names():
        preset = load_preset(job.preset)
        yield from _data(path, job, preset)
        yield from _sections(path, job, shape, preset)
    yield from _allowed_changes(path, job)
    yield from _trackers(path, job, secrets)


def _data(path: str, job: TrainingJob, preset: Preset) -> Iterator[Fault]:
    if not (job.data or preset.data):
        yield Fault(
            f"{path}.data",
            f"what to train on, since the preset {job.preset} has no data of its own",
            "nothing",
            f"add {path}.data to the stack file; docs/data.md says how to make a token folder",
        )


def _sections(path: str, job: TrainingJob, shape: SliceShape | None, preset: Preset) -> Iterator[Fault]:
    wrong: list[Fault] = []
    sections = (
        ("model", ModelSpec, lambda job, preset: preset.model_with(job.model)),
        ("training", TrainingSpec, job_spec.training_spec),
        ("optimizer", OptimizerSpec, job_spec.optimizer_spec),
    )
    for name, model, merged in sections:
        try:
            merged(job, preset)
        except ValidationError as error:
            wrong += from_validation(error, f"{path}.{name}", model)
    if not wrong and job_spec.training_spec(job, preset).lora:
        wrong += _adapters(path, job, preset)
    yield from wrong
    if shape and not wrong:
        yield from _fit(path, job, shape, preset)


def _adapters(path: str, job: TrainingJob, preset: Preset) -> Iterator[Fault]:
    if not job.initial_weights:
        yield Fault(
            f"{path}.initial_weights",
            f"the folder of the weights that {path}.training.lora adapts",
            "nothing",
            "write it; docs/models.md says how to make one",
        )
    if (kind := job_spec.optimizer_spec(job, preset).kind) != "adamw":
        yield Fault(f"{path}.optimizer.kind", f"adamw with {path}.training.lora", kind, "remove one of them")


def _allowed_changes(path: str, job: TrainingJob) -> Iterator[Fault]:
    """A change of the preset must not reach a run because its job once allowed one of the stack file."""
    place, written = f"{path}.allow_changes", {f"optimizer.{name}" for name in job.optimizer}
    for name in sorted({*job.allow_changes} - written):
        yield Fault(place, f"a setting of {path}.optimizer", name, f"set {path}.{name}, or remove the name here")
    if job.allow_changes and job.existing_run != "resume":
        yield Fault(place, "existing_run: resume", f"existing_run: {job.existing_run}", "change one of the two")


def _trackers(path: str, job: TrainingJob, secrets: Collection[str]) -> Iterator[Fault]:
    own = secrets if job.secrets is None else job.secrets
    if job.trackers.wandb and WANDB_KEY_VARIABLE not in own:
        yield Fault(
            f"{path}.trackers.wandb",
            f"the secret {WANDB_KEY_VARIABLE} among those of the job, since the trainer logs in with it",
            listed(own),
            f"pulumi config set --secret --path 'tpu-multislice:secrets.{WANDB_KEY_VARIABLE}', and add the name to"
            f" {path}.secrets if the job has that list",
        )


def _fit(path: str, job: TrainingJob, shape: SliceShape, preset: Preset) -> Iterator[Fault]:
    # Sizes are judged also while there is no data yet.
    with_data = job if job.data or preset.data else job.model_copy(update={"data": _ANY_DATA})
    try:
        job_spec.assemble(with_data, shape, preset, storage_root="gs://bucket")
    except ValidationError as error:
        for detail in error.errors():
            yield Fault(
                path,
                f"sizes that fit {job.slices.count} x {shape.generation} {shape.topology}",
                expectation(detail["msg"]),
                f"change {path}.slices, {path}.mesh, {path}.model, {path}.training or {path}.preset",
            )

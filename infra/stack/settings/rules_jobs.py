"""Rules for jobs of any kind, training jobs, and secrets."""

import shlex
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from graphlib import CycleError
from typing import cast

from pydantic import ValidationError

from infra.stack.names import TEAMS_FOLDER
from infra.stack.pods import requested_of_host
from infra.stack.programs import TAKEN_PREFIXES, TAKEN_VARIABLES
from infra.stack.settings import rules_containers
from infra.stack.settings.errors import FieldError, expectation, from_validation, nearest
from infra.stack.settings.jobs import AnyJob, ContainerJob, HostShare, JobSettings, Section, TrainingJob, group_order
from infra.stack.settings.schema import DATASETS_FOLDER, SliceGroup
from infra.stack.settings.sections import WrongValueError, each
from infra.stack.settings.stack import Draft, DraftJob, Shapes, check_name, join_names
from infra.stack.settings.values import NAMESPACE, PROJECT_OF_SANDBOX, SECRETS, VARIABLE, VARIABLE_RULE, Hidden
from infra.stack.submission import assemble, optimizer_spec, training_spec
from infra.stack.tpu import SliceShape
from workloads.spec import (
    WANDB_KEY_VARIABLE,
    JobSpec,
    ModelSpec,
    OptimizerSpec,
    Preset,
    TokenFileSpec,
    TrainingSpec,
    load_preset,
    preset_names,
)

_MAX_LABEL_LENGTH = 63
"""Maximum length of a queue's name. Kueue puts it on the job's pods as a label
(https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set)."""
_ANY_DATA = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)
_NOT_SHOWN = "something else, which is not shown here"
"""No error shows the value of a secret, even if it is in the file in plain text."""
_SET = f"pulumi config set --secret --path '{NAMESPACE}:{SECRETS}.NAME'"
_REVOKE = "if it was in the file in plain text, revoke it, because it is in the file's history"


def check(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of the jobs."""
    for entry in draft.jobs:
        yield from _names(entry, draft)
        yield from _preset(entry)
        yield from each(_paths(entry, draft))
        if entry.job:
            yield from _job(entry.path, entry.job, draft, shapes)
    yield from each(*(_order(team, draft) for team in draft.written_teams))


def _job(path: str, job: AnyJob, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    rights = rules_containers.check_rights(path, job, draft, (job.team,))
    yield from each(_name(path, job), _mounts(path, job, draft), _secrets(path, job, draft), rights)
    with suppress(WrongValueError):
        groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
        shape = shapes.get(job.slices.group)
        yield from each(
            *(_job_slices(path, job, name, group) for name, group in groups.items()),
            _capacities(path, groups),
            *([_fallback(path, job, groups, shape)] if shape else []),
        )
    match job:
        case TrainingJob():
            yield from _training(path, job, draft, shapes)
        case ContainerJob():
            yield from rules_containers.check_container(path, job, draft, shapes)


def _name(path: str, job: JobSettings) -> Iterator[FieldError]:
    if job.name == TEAMS_FOLDER:
        expected = f"a name other than {TEAMS_FOLDER}, the folder of all teams in the bucket"
        yield FieldError(path, expected, job.name, "rename the job")
    if len(job.queue) > _MAX_LABEL_LENGTH:
        expected = f"names of team and job that have at most {_MAX_LABEL_LENGTH - 1} characters together"
        fix = "shorten one of them: the job's queue is named after both"
        yield FieldError(path, expected, f"{len(job.queue) - 1}", fix)


def _mounts(path: str, job: JobSettings, draft: Draft) -> Iterator[FieldError]:
    if job.host_network and draft.datasets and draft.datasets.mount:
        expected = (
            f"no mount with {path}.host_network: such pods act as their node, but Cloud Storage FUSE acts as the pod"
        )
        fix = "remove one of them; a trainer reads gs:// paths without a mount"
        yield FieldError("datasets.mount", expected, "both", fix)


def _secrets(path: str, job: JobSettings, draft: Draft) -> Iterator[FieldError]:
    if unknown := sorted(set(job.secrets or ()) - set(draft.secrets)):
        expected = f"names of the section secrets: {join_names(draft.secrets)}"
        yield FieldError(f"{path}.secrets", expected, ", ".join(unknown), "rename it or add the secret")


def _names(entry: DraftJob, draft: Draft) -> Iterator[FieldError]:
    """Yield the errors of a job's references, even if something else in the job could not be read."""
    team, slices = entry.written.get("team"), entry.written.get("slices")
    if isinstance(team, str):
        place, known = f"{entry.path}.team", draft.written_teams
        yield from check_name(place, "one of the teams", team, known, "rename it or add the team")
    for path, group in _written_groups(entry.path, slices) if isinstance(slices, Mapping) else ():
        if isinstance(group, str):
            kind, known = "one of the slice groups", draft.written_slices
            yield from check_name(path, kind, group, known, "rename it or add the group")


def _written_groups(path: str, slices: object) -> Iterator[tuple[str, object]]:
    written = cast(Section, slices)
    yield f"{path}.slices.group", written.get("group")
    fallback = written.get("fallback")
    if isinstance(fallback, list):
        yield from ((f"{path}.slices.fallback", group) for group in cast(list[object], fallback))


def _order(team: str, draft: Draft) -> Iterator[FieldError]:
    """Yield jobs whose order of groups no queue can have: a team has one queue with one order of flavors."""
    preferences: list[tuple[str, ...]] = []
    for path, job in draft.readable_jobs:
        preference: tuple[str, ...] = ()
        with suppress(WrongValueError):
            preference = job.slices.groups if job.team == team else ()
        if not preference or len(set(preference)) < len(preference):
            continue
        preferences.append(preference)
        try:
            group_order(preferences)
        except CycleError:
            preferences.pop()
            expected = f"an order of groups that fits the other jobs of team {team}, since they share a queue"
            fix = "change the order, or give the job to another team"
            yield FieldError(f"{path}.slices.fallback", expected, ", then ".join(preference), fix)


def _job_slices(path: str, job: JobSettings, name: str, group: SliceGroup) -> Iterator[FieldError]:
    count, shape, place = job.slices.count, group.shape, f"{path}.slices.count"
    if count > group.count:
        fix = f"lower it or raise slices.{name}.count"
        yield FieldError(place, f"at most the {group.count} slices of {name}", str(count), fix)
    if count > 1 and not shape.multi_host:
        expected = (
            f"1, since a {shape.topology} of {shape.machine_type} has one host and GKE joins multi-host slices only"
        )
        yield FieldError(place, expected, str(count), f"lower it or choose a larger slices.{name}.topology")
    if count > 1 and group.capacity.queued:
        expected = f"1, since {name} is queued and a queued request brings the hosts of one slice"
        yield FieldError(place, expected, str(count), f"lower it or write flex-start as slices.{name}.capacity.kind")


def _fallback(path: str, job: JobSettings, groups: Mapping[str, SliceGroup], shape: SliceShape) -> Iterator[FieldError]:
    place = f"{path}.slices.fallback"
    if repeated := sorted({name for name in job.slices.groups if job.slices.groups.count(name) > 1}):
        expected = f"each group once, and not {path}.slices.group"
        yield FieldError(place, expected, ", ".join(repeated), "remove it there")
    for name, group in groups.items():
        if group.shape != shape:
            yield FieldError(
                place,
                f"groups of {shape.generation} {shape.topology} on {shape.machine_type}, as {job.slices.group}",
                f"{name} of {group.generation} {group.topology} on {group.shape.machine_type}",
                "remove it there: the job is rendered for one shape of slice",
            )


def _capacities(path: str, groups: Mapping[str, SliceGroup]) -> Iterator[FieldError]:
    flexible = [name for name, group in groups.items() if group.capacity.requested_by_pods]
    queued = [name for name, group in groups.items() if group.capacity.queued]
    if flexible and queued:
        yield FieldError(
            f"{path}.slices.fallback",
            "either queued or flex-start groups: pods that wait together request flex-start slices, and a queued"
            " request knows no other pods",
            f"{join_names(queued)} (queued) and {join_names(flexible)} (flex-start)",
            "remove one of the two kinds",
        )


def _preset(entry: DraftJob) -> Iterator[FieldError]:
    preset = entry.written.get("preset")
    if isinstance(preset, str) and preset not in preset_names():
        expected = f"one of the presets {', '.join(preset_names())}"
        yield FieldError(f"{entry.path}.preset", expected, repr(preset), "rename it", nearest(preset, preset_names()))


def _training(path: str, job: TrainingJob, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    yield from each(
        _backend(path, job),
        _data(path, job),
        _sections(path, job, shapes),
        _allowed_changes(path, job),
        _tracker(path, job, draft.secrets),
    )


def _backend(path: str, job: TrainingJob) -> Iterator[FieldError]:
    if job.backend == "pathways":
        yield FieldError(
            f"{path}.backend",
            "direct: the trainer is one program on every host, whereas with Pathways one program drives all hosts",
            job.backend,
            "remove it, or write a job of kind container with a program that calls pathwaysutils.initialize()",
        )


def _data(path: str, job: TrainingJob) -> Iterator[FieldError]:
    if job.preset in preset_names() and not (job.data or load_preset(job.preset).data):
        expected = f"data to train on, since the preset {job.preset} has no data of its own"
        fix = f"add {path}.data to the stack file; docs/how-to/data.md says how to make a token folder"
        yield FieldError(f"{path}.data", expected, "nothing", fix)


def _paths(entry: DraftJob, draft: Draft) -> Iterator[FieldError]:
    """Yield the folders that pods in Google Cloud cannot read, even if something else in the job could not be read.

    Pods of the sandbox read all files of the machine.
    """
    if draft.cloud is None or draft.cloud.project == PROJECT_OF_SANDBOX:
        return
    data, place = entry.written.get("data"), f"{entry.path}.data"
    section = cast(Section, data) if isinstance(data, Mapping) else {}
    yield from _path(f"{place}.path", section.get("path"))
    mixed = section.get("datasets")
    for name, folder in cast(Section, mixed).items() if isinstance(mixed, Mapping) else ():
        if isinstance(folder, Mapping):
            yield from _path(f"{place}.datasets.{name}.path", cast(Section, folder).get("path"))
    yield from _path(f"{entry.path}.initial_weights", entry.written.get("initial_weights"))


def _path(place: str, folder: object) -> Iterator[FieldError]:
    if isinstance(folder, str) and not folder.startswith(("gs://", f"{DATASETS_FOLDER}/")):
        expected = f"a folder that pods can read: gs://BUCKET/FOLDER, or with datasets.mount {DATASETS_FOLDER}/FOLDER"
        fix = f"copy it with gcloud storage cp --recursive {shlex.quote(folder)} gs://BUCKET, and write that path"
        yield FieldError(place, expected, repr(folder), fix)


def _allowed_changes(path: str, job: TrainingJob) -> Iterator[FieldError]:
    place, written = f"{path}.allow_changes", {f"optimizer.{name}" for name in job.optimizer}
    # A changed preset must not affect a run because its job once allowed a change in the stack file.
    for name in sorted({*job.allow_changes} - written):
        fix = f"set {path}.{name}, or remove the name here"
        yield FieldError(place, f"a setting of {path}.optimizer", name, fix)
    if job.allow_changes and job.existing_run != "resume":
        got = f"existing_run: {job.existing_run}"
        yield FieldError(place, "existing_run: resume", got, "change one of the two")


def _tracker(path: str, job: TrainingJob, secrets: Collection[str]) -> Iterator[FieldError]:
    own = secrets if job.secrets is None else job.secrets
    if job.trackers.wandb and WANDB_KEY_VARIABLE not in own:
        yield FieldError(
            f"{path}.trackers.wandb",
            f"the secret {WANDB_KEY_VARIABLE} among those of the job, since the trainer logs in with it",
            join_names(own),
            f"pulumi config set --secret --path '{NAMESPACE}:{SECRETS}.{WANDB_KEY_VARIABLE}', and add the name to"
            f" {path}.secrets if the job has that list",
        )


def _sections(path: str, job: TrainingJob, shapes: Shapes) -> Iterator[FieldError]:
    if job.preset not in preset_names():
        return
    preset, wrong = load_preset(job.preset), list[FieldError]()
    sections = (
        ("model", ModelSpec, lambda job, preset: preset.model_with(job.model)),
        ("training", TrainingSpec, training_spec),
        ("optimizer", OptimizerSpec, optimizer_spec),
    )
    for name, model, merged in sections:
        try:
            merged(job, preset)
        except ValidationError as error:
            wrong += from_validation(error, f"{path}.{name}", model)
        except WrongValueError:
            continue  # The section is reported already.
    yield from wrong
    if wrong:
        return
    adapters = list(_adapters(path, job, preset) if training_spec(job, preset).lora else ())
    yield from adapters
    if not adapters and (shape := shapes.get(job.slices.group)):
        yield from _fit(path, job, shape, preset)


def _adapters(path: str, job: TrainingJob, preset: Preset) -> Iterator[FieldError]:
    if not job.initial_weights:
        expected = f"the folder of the weights that {path}.training.lora adapts"
        fix = "write it; docs/how-to/models.md says how to make one"
        yield FieldError(f"{path}.initial_weights", expected, "nothing", fix)
    if (kind := optimizer_spec(job, preset).kind) != "adamw":
        yield FieldError(f"{path}.optimizer.kind", f"adamw with {path}.training.lora", kind, "remove one of them")


def _fit(path: str, job: TrainingJob, shape: SliceShape, preset: Preset) -> Iterator[FieldError]:
    try:
        spec = _assembled(job, shape, preset)
    except ValidationError as error:
        expected = f"sizes that fit {job.slices.count} x {shape.generation} {shape.topology}"
        settings = ("slices", "mesh", "model", "training", "preset")
        fix = f"change {', '.join(f'{path}.{name}' for name in settings[:-1])} or {path}.{settings[-1]}"
        for detail in error.errors():
            if detail["type"] == "value_error":  # Values of another kind are reported already.
                yield FieldError(path, expected, expectation(detail["msg"]), fix)
    else:
        yield from _local_states(path, spec, shape)


def _local_states(path: str, spec: JobSpec, shape: SliceShape) -> Iterator[FieldError]:
    """Yield the error of a job whose newest states need more memory than its pods request."""
    _, gib = requested_of_host(shape, HostShare())
    if (needed := spec.local_states_gib) and needed > gib:
        expected = f"room for two states of a host in the {gib} GiB that a pod requests of {shape.machine_type}"
        fix = "choose slices with more hosts or more memory, or remove it"
        yield FieldError(f"{path}.training.local_save_every_steps", expected, f"{needed} GiB", fix)


def misplaced_secrets(raw: Mapping[str, object]) -> Iterator[FieldError]:
    """Yield the secrets in a section other than `secrets`. `raw` contains the stack file's values by section."""
    for section, value in raw.items():
        if section != SECRETS:
            for path in _marks(section, value):
                yield FieldError(
                    path,
                    "a plain value, since plans, bills and the job's files show it",
                    "a Pulumi secret",
                    f"set it in plain text (pulumi config set --plaintext); for secrets of the job: {_SET}",
                )


def check_secrets(written: object) -> Iterator[FieldError]:
    """Yield the errors of the section `secrets`."""
    if not isinstance(written, Mapping):
        expected = "environment variables by name, each a Pulumi secret"
        yield FieldError(SECRETS, expected, _NOT_SHOWN, f"{_SET}; {_REVOKE}")
        return
    for name, value in ((str(key), item) for key, item in cast(Mapping[object, object], written).items()):
        path = f"{SECRETS}.{name}"
        if not VARIABLE.fullmatch(name):
            yield FieldError(path, VARIABLE_RULE, repr(name), "rename it")
        elif name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES):
            expected = "a variable that neither GKE nor the trainer's start-up sets or reads"
            yield FieldError(path, expected, repr(name), "rename it, and use the new name in the program that needs it")
        if not isinstance(value, Hidden):
            fix = f"{_SET.replace('NAME', name)}; {_REVOKE}"
            yield FieldError(path, "a text that Pulumi keeps as a secret", _NOT_SHOWN, fix)


def _marks(path: str, value: object) -> Iterator[str]:
    match value:
        case Hidden():
            yield path
        case dict():
            for key, item in cast(dict[str, object], value).items():
                yield from _marks(f"{path}.{key}", item)
        case list():
            for index, item in enumerate(cast(list[object], value)):
                yield from _marks(f"{path}[{index}]", item)
        case _:
            return


def _assembled(job: TrainingJob, shape: SliceShape, preset: Preset) -> JobSpec:
    """Return the job's specification, even if it has no data yet.

    Raise ValidationError if its sizes do not fit its slices.
    """
    with_data = job if job.data or preset.data else job.model_copy(update={"data": _ANY_DATA})
    return assemble(with_data, shape, preset, storage_root="gs://bucket")

"""Rules of the jobs of any kind, of training jobs, and of secrets."""

from collections.abc import Iterator, Mapping
from graphlib import CycleError
from typing import cast

from pydantic import ValidationError

from infra import submission
from infra.names import TEAMS_FOLDER
from infra.programs import TAKEN_PREFIXES, TAKEN_VARIABLES
from infra.settings import rules_containers
from infra.settings.errors import Fault, expectation, from_validation, nearest
from infra.settings.jobs import ContainerJob, Job, TrainingJob, group_order
from infra.settings.schema import SliceGroup
from infra.settings.stack import Draft, DraftJob, Shapes, Written, listed
from infra.settings.values import SECTION, VARIABLE, VARIABLE_RULE, Hidden
from infra.tpu import SliceShape
from workloads.spec import ModelSpec, OptimizerSpec, Preset, TokenFileSpec, TrainingSpec, load_preset, preset_names


def check_jobs(draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    """Faults of the jobs."""
    for entry in draft.jobs:
        yield from _names(entry, draft)
        yield from preset_named(entry)
        if entry.job:
            yield from _job(entry.path, entry.job, draft, shapes)
    yield from _orders(draft)


def _job(path: str, job: Job, draft: Draft, shapes: Shapes) -> Iterator[Fault]:
    if job.name == TEAMS_FOLDER:
        yield Fault(
            path, f"a name other than {TEAMS_FOLDER}, the folder of all teams in the bucket", job.name, "rename the job"
        )
    yield from _mount(path, job, draft)
    yield from _named_secrets(path, job, draft)
    groups = {name: draft.slices[name] for name in job.slices.groups if name in shapes}
    for name, group in groups.items():
        yield from _job_slices(path, job, name, group)
    yield from _capacities(path, groups)
    shape = shapes.get(job.slices.group)
    if shape:
        yield from _fallback(path, job, groups, shape)
    yield from rules_containers.check_pathways(path, job, draft, shape)
    match job:
        case TrainingJob():
            yield from check_training(path, job, shape)
        case ContainerJob():
            yield from rules_containers.check_container(path, job, draft, shape)
        case _:
            raise AssertionError(job)


def _names(entry: DraftJob, draft: Draft) -> Iterator[Fault]:
    """What the job refers to, also when something else of the job could not be read."""
    team = entry.written.get("team")
    if isinstance(team, str) and draft.written_teams and team not in draft.written_teams:
        among = f"one of the teams {listed(draft.written_teams)}"
        yield Fault(
            f"{entry.path}.team", among, repr(team), "rename it or add the team", nearest(team, draft.written_teams)
        )
    for path, group in _written_groups(entry.path, entry.written.get("slices")):
        if isinstance(group, str) and draft.written_slices and group not in draft.written_slices:
            among = f"one of the slice groups {listed(draft.written_slices)}"
            yield Fault(path, among, repr(group), "rename it or add the group", nearest(group, draft.written_slices))


def _written_groups(path: str, slices: object) -> Iterator[tuple[str, object]]:
    """The groups that the job names, with their paths."""
    if not isinstance(slices, Mapping):
        return
    written = cast(Written, slices)
    yield f"{path}.slices.group", written.get("group")
    fallback = written.get("fallback")
    if isinstance(fallback, list):
        yield from ((f"{path}.slices.fallback", group) for group in cast(list[object], fallback))


def _orders(draft: Draft) -> Iterator[Fault]:
    """A team has one queue, and that tries its flavors in one order."""
    for team in draft.written_teams:
        wishes: list[tuple[str, ...]] = []
        for path, job in draft.readable_jobs:
            if job.team != team or len(set(job.slices.groups)) < len(job.slices.groups):
                continue
            wishes.append(job.slices.groups)
            try:
                group_order(wishes)
            except CycleError:
                wishes.pop()
                yield Fault(
                    f"{path}.slices.fallback",
                    f"groups in an order that goes with that of the other jobs of team {team}, for they share a queue",
                    ", then ".join(job.slices.groups),
                    "change the order, or give the job to another team",
                )


def _named_secrets(path: str, job: Job, draft: Draft) -> Iterator[Fault]:
    if unknown := sorted(set(job.secrets or ()) - set(draft.secrets)):
        among = f"names of the section secrets: {listed(draft.secrets)}"
        yield Fault(f"{path}.secrets", among, ", ".join(unknown), "rename it or add the secret")


def _mount(path: str, job: Job, draft: Draft) -> Iterator[Fault]:
    if job.host_network and draft.datasets and draft.datasets.mount:
        yield Fault(
            "datasets.mount",
            f"no mount beside {path}.host_network: such pods act as their node, and Cloud Storage FUSE as the pod",
            "both",
            "remove one of them; a trainer reads gs:// paths without a mount",
        )


def _job_slices(path: str, job: Job, name: str, group: SliceGroup) -> Iterator[Fault]:
    shape = group.shape
    if job.slices.count > group.count:
        yield Fault(
            f"{path}.slices.count",
            f"at most the {group.count} slices of {name}",
            str(job.slices.count),
            f"lower it or raise slices.{name}.count",
        )
    if job.slices.count > 1 and not shape.multi_host:
        yield Fault(
            f"{path}.slices.count",
            f"1, since a {shape.topology} of {shape.machine_type} has one host and GKE joins multi-host slices only",
            str(job.slices.count),
            f"lower it or choose a larger slices.{name}.topology",
        )
    if job.slices.count > 1 and group.capacity.queued:
        yield Fault(
            f"{path}.slices.count",
            f"1, since {name} is queued and a queued request brings the hosts of one slice",
            str(job.slices.count),
            f"lower it or write flex-start as slices.{name}.capacity.kind",
        )


def _fallback(path: str, job: Job, groups: Mapping[str, SliceGroup], shape: SliceShape) -> Iterator[Fault]:
    place = f"{path}.slices.fallback"
    repeated = sorted({name for name in job.slices.groups if job.slices.groups.count(name) > 1})
    if repeated:
        yield Fault(place, f"each group once, and not {path}.slices.group", ", ".join(repeated), "remove it there")
    for name, group in groups.items():
        if group.shape != shape:
            yield Fault(
                place,
                f"groups of {shape.generation} {shape.topology} on {shape.machine_type}, as {job.slices.group}",
                f"{name} of {group.generation} {group.topology} on {group.shape.machine_type}",
                "remove it there: the job is made for one shape of slice",
            )


def _capacities(path: str, groups: Mapping[str, SliceGroup]) -> Iterator[Fault]:
    flexible = [name for name, group in groups.items() if group.capacity.requested_by_pods]
    queued = [name for name, group in groups.items() if group.capacity.queued]
    if flexible and queued:
        yield Fault(
            f"{path}.slices.fallback",
            "either queued or flex-start groups: pods that wait together ask for flex-start slices, and"
            " a queued request knows no other pods",
            f"{listed(queued)} (queued) beside {listed(flexible)} (flex-start)",
            "remove one of the two kinds",
        )


_ANY_DATA = TokenFileSpec(source="token-file", path="gs://bucket/tokens", held_out_fraction=0.01)


def preset_named(entry: DraftJob) -> Iterator[Fault]:
    """Faults of the preset's name, also when something else of the job could not be read."""
    preset = entry.written.get("preset")
    if isinstance(preset, str) and preset not in preset_names():
        known = f"one of the presets {', '.join(preset_names())}"
        yield Fault(f"{entry.path}.preset", known, repr(preset), "rename it", nearest(preset, preset_names()))


def check_training(path: str, job: TrainingJob, shape: SliceShape | None) -> Iterator[Fault]:
    """Faults of one job, on slices of `shape` where that is known."""
    if job.preset in preset_names():
        preset = load_preset(job.preset)
        yield from _data(path, job, preset)
        yield from _sections(path, job, shape, preset)
    yield from _allowed_changes(path, job)


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
        ("training", TrainingSpec, submission.training_spec),
        ("optimizer", OptimizerSpec, submission.optimizer_spec),
    )
    for name, model, merged in sections:
        try:
            merged(job, preset)
        except ValidationError as error:
            wrong += from_validation(error, f"{path}.{name}", model)
    yield from wrong
    if shape and not wrong:
        yield from _fit(path, job, shape, preset)


def _allowed_changes(path: str, job: TrainingJob) -> Iterator[Fault]:
    """A change of the preset must not reach a run because its job once allowed one of the stack file."""
    place, written = f"{path}.allow_changes", {f"optimizer.{name}" for name in job.optimizer}
    for name in sorted({*job.allow_changes} - written):
        yield Fault(place, f"a setting of {path}.optimizer", name, f"set {path}.{name}, or remove the name here")
    if job.allow_changes and job.existing_run != "resume":
        yield Fault(place, "existing_run: resume", f"existing_run: {job.existing_run}", "change one of the two")


def _fit(path: str, job: TrainingJob, shape: SliceShape, preset: Preset) -> Iterator[Fault]:
    # Sizes are judged also while there is no data yet.
    with_data = job if job.data or preset.data else job.model_copy(update={"data": _ANY_DATA})
    try:
        submission.assemble(with_data, shape, preset, storage_root="gs://bucket")
    except ValidationError as error:
        for detail in error.errors():
            yield Fault(
                path,
                f"sizes that fit {job.slices.count} x {shape.generation} {shape.topology}",
                expectation(detail["msg"]),
                f"change {path}.slices, {path}.mesh, {path}.model, {path}.training or {path}.preset",
            )


_NOT_SHOWN = "something else, which is not shown here"


_SET = f"pulumi config set --secret --path 'tpu-multislice:{SECTION}.NAME'"


_REVOKE = "if it stood in the file in plain, revoke it: it is in the file's history"


def misplaced(raw: Mapping[str, object]) -> Iterator[Fault]:
    """Secrets in any section but their own; `raw` is the stack file's values by section."""
    for section, value in raw.items():
        if section != SECTION:
            for path in _marks(section, value):
                yield Fault(
                    path,
                    "a plain value, since plans, bills and the job's files show it",
                    "a Pulumi secret",
                    f"set it in plain (pulumi config set --plaintext); what the job is to get in secret: {_SET}",
                )


def check_secrets(written: object) -> Iterator[Fault]:
    """Faults of the section `secrets`."""
    if not isinstance(written, Mapping):
        yield Fault(SECTION, "environment variables by name, each a Pulumi secret", _NOT_SHOWN, f"{_SET}; {_REVOKE}")
        return
    for name, value in ((str(key), item) for key, item in cast(Mapping[object, object], written).items()):
        path = f"{SECTION}.{name}"
        if not VARIABLE.fullmatch(name):
            yield Fault(path, VARIABLE_RULE, repr(name), "rename it")
        elif name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES):
            expected = "a variable that neither GKE nor the trainer's start-up sets or reads"
            yield Fault(path, expected, repr(name), "rename it, and tell the program that needs it the other name")
        if not isinstance(value, Hidden):
            fix = f"{_SET.replace('NAME', name)}; {_REVOKE}"
            yield Fault(path, "a text that Pulumi keeps as a secret", _NOT_SHOWN, fix)


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

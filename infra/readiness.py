"""What keeps a valid stack file from being brought up: its time is over, example values, and doubts."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pulumi

from infra.cost import price_table
from infra.settings.errors import Fault, SettingsError
from infra.settings.jobs import Job
from infra.settings.schema import DATASETS_FOLDER, Budget, Environment
from infra.settings.stack import Settings
from workloads.spec import token_folders

_DESTROY = "pulumi destroy"


def now() -> datetime:
    """The time that it is in UTC."""
    return datetime.now(UTC)


def expired(budget: Budget | None, environment: Environment | None, at: datetime) -> list[Fault]:
    """The faults of a stack whose time is over."""
    faults: list[Fault] = []
    if budget and budget.expires_on and at.date() > budget.expires_on:
        ways = f"set a later one, or destroy the stack: {_DESTROY}"
        day = f"a day that has not passed on {at.date()}"
        faults.append(Fault("budget.expires_on", day, str(budget.expires_on), ways))
    if environment and at >= environment.end:
        ways = f"destroy it: multislice env destroy, or {_DESTROY}; a later time keeps it"
        time = f"a time after {at:%Y-%m-%dT%H:%M:%SZ}"
        faults.append(Fault("environment.expires_at", time, environment.expires_at, ways))
    return faults


def changeable_until(budget: Budget | None, environment: Environment | None, at: datetime) -> list[pulumi.Resource]:
    """Declare the ends of the stack, at a time; all that costs depends on what is returned."""
    ends = _ends(budget, environment)
    if not ends:
        return []
    faults = expired(budget, environment, at)

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        if faults:
            raise SettingsError(faults)

    # What is recorded differs once the time is over, so that there is an update to refuse whatever else changes.
    record = {**ends, "expired": bool(faults)}
    hook = pulumi.ResourceHook("has-not-expired", refuse, pulumi.ResourceHookOptions(on_dry_run=True))
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    known_before = [pulumi.Alias(name="budget")]
    return [pulumi.Stash("expiry", input=record, opts=pulumi.ResourceOptions(hooks=watched, aliases=known_before))]


def _ends(budget: Budget | None, environment: Environment | None) -> dict[str, str]:
    of_budget = {"expires_on": str(budget.expires_on)} if budget and budget.expires_on else {}
    return of_budget | ({"expires_at": environment.expires_at} if environment else {})


EXAMPLES = frozenset({"my-project", "my-capacity", "my-datasets"})
"""Projects and buckets of the stack files in `stacks/`."""
_NO_DIGEST = f"@sha256:{'0' * 64}"


def placeholders(settings: Settings) -> list[Fault]:
    """Return a fault for each value that stands in an example and nowhere else."""
    return list(_placeholders("", settings.model_dump()))


def _placeholders(path: str, value: object) -> Iterator[Fault]:
    match value:
        case dict():
            for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                yield from _placeholders(f"{path}.{key}" if path else str(key), item)
        case str() if value in EXAMPLES:
            yield Fault(path, "a name of your own", f"{value}, which is that of an example", "write your own")
        case str() if value.endswith(_NO_DIGEST):
            build = ", or write image.build: true in place of it" if path == "image.reference" else ""
            yield Fault(path, "the digest of an image", "64 zeros", f"push an image and write its digest{build}")
        case _:
            return


def doubts(settings: Settings) -> list[Fault]:
    """Return what is probably wrong and cannot be known without Google Cloud, such as a bucket without a grant."""
    return [*_ungranted(settings), *_unlisted(settings)]


def _ungranted(settings: Settings) -> Iterator[Fault]:
    granted = {settings.dataset_bucket}
    wanted: dict[str, list[str]] = {}
    for name, job in settings.training_jobs.items():
        folders = token_folders(job.data) if job.data else {}
        data = [(f"{setting}.path", folder.path) for setting, folder in folders.items()]
        for setting, path in (*data, ("initial_weights", job.initial_weights or "")):
            if path.startswith(f"gs://{settings.checkpoint_bucket}/"):
                yield from _others(settings, job, setting, path)
            elif path.startswith("gs://"):
                wanted.setdefault(path.removeprefix("gs://").partition("/")[0], []).append(f"{setting} of job {name}")
            elif path.startswith(f"{DATASETS_FOLDER}/") and not settings.mounts_datasets:
                expected = f"true, since {setting} of job {name} lies in {DATASETS_FOLDER}"
                yield Fault("datasets.mount", expected, "false", "write datasets.mount: true, or a gs:// path")
    for bucket, users in wanted.items():
        if bucket not in granted:
            yield Fault(
                "datasets.bucket",
                f"{bucket}, which has {' and '.join(users)}",
                settings.dataset_bucket or "nothing",
                f"write datasets.bucket: {bucket}; the stack grants no trainer any other bucket,"
                " and without a grant of your own the job ends after its chips are there",
            )


def _others(settings: Settings, job: Job, setting: str, path: str) -> Iterator[Fault]:
    """What lies in a folder of the checkpoint bucket that the job's pods do not read."""
    own = settings.written_folders[settings.team_of(job).namespace]
    within = path.removeprefix(f"gs://{settings.checkpoint_bucket}/")
    if not any(f"{within}/".startswith(f"{folder}/") for folder in own):
        yield Fault(
            setting,
            f"a folder of the checkpoint bucket that the pods of job {job.name} read: {' or '.join(own)}",
            within,
            f"move it to gs://{settings.checkpoint_bucket}/{own[0]}, or to a bucket that datasets.bucket names",
        )


def _unlisted(settings: Settings) -> Iterator[Fault]:
    cloud = settings.cloud
    for name, group in settings.slices.items():
        rows = [row for row in price_table().prices if row.generation == group.generation]
        zone = group.zone_in(cloud)
        here = [row for row in rows if row.place in (cloud.region, zone)]
        if rows and not here and name not in settings.prices.usd_per_chip_hour:
            yield Fault(
                f"slices.{name}.zone" if group.zone else "cloud.zone",
                f"a zone with {group.generation} chips for slices.{name}; they are listed in"
                f" {', '.join(sorted({row.place for row in rows}))}",
                f"{zone}, for which nobody lists them",
                f"look: gcloud compute machine-types list --zones={zone} --filter=name={group.shape.machine_type}",
            )


def filled_in(settings: Settings) -> list[pulumi.Resource]:
    """Declare what `up` refuses while there are placeholders; all that costs depends on what is returned."""
    found = placeholders(settings)
    if not found:
        return []

    def refuse(_: pulumi.ResourceHookArgs) -> None:
        raise SettingsError(found)

    hook = pulumi.ResourceHook("no-placeholders", refuse)
    watched = pulumi.ResourceHookBinding(before_create=[hook], before_update=[hook])
    record = {fault.path: fault.got for fault in found}
    return [pulumi.Stash("placeholders", input=record, opts=pulumi.ResourceOptions(hooks=watched))]

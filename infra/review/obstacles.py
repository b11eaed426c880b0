"""Obstacles that prevent a valid stack from being brought up: its time is over, or example values are left. It also
finds doubtful values."""

from collections.abc import Iterator
from datetime import datetime

from infra.stack.command_lines import command_line
from infra.stack.cost import price_table
from infra.stack.settings.errors import FieldError
from infra.stack.settings.jobs import JobSettings
from infra.stack.settings.schema import DATASETS_FOLDER, Budget
from infra.stack.settings.stack import Settings
from workloads.spec import token_folders

EXAMPLES = frozenset({"my-project", "my-capacity", "my-datasets"})
"""Projects and buckets of the stack files in `stacks/`."""
_NO_DIGEST = f"@sha256:{'0' * 64}"


def expiry_errors(budget: Budget | None, at: datetime, stack: str) -> list[FieldError]:
    """Return the errors of a stack whose time is over. `stack` is its name."""
    errors: list[FieldError] = []
    if budget and budget.expires_on and at.date() > budget.expires_on:
        expected, fix = (
            f"a day that is not past on {at.date()}",
            f"set a later one, or destroy the stack: {command_line('down', stack)}",
        )
        errors.append(FieldError("budget.expires_on", expected, str(budget.expires_on), fix))
    return errors


def placeholders(settings: Settings) -> list[FieldError]:
    """Return an error for each remaining example value."""
    return list(_placeholders("", settings.model_dump()))


def _placeholders(path: str, value: object) -> Iterator[FieldError]:
    match value:
        case dict():
            for key, item in value.items():  # pyright: ignore[reportUnknownVariableType]
                yield from _placeholders(f"{path}.{key}" if path else str(key), item)
        case str() if value in EXAMPLES:
            yield FieldError(path, "a name of your own", f"{value}, which is that of an example", "write your own")
        case str() if value.endswith(_NO_DIGEST):
            build = ", or write image.build: true instead" if path == "image.reference" else ""
            yield FieldError(path, "the digest of an image", "64 zeros", f"push an image and write its digest{build}")
        case _:
            return


def doubts(settings: Settings) -> list[FieldError]:
    """Return values that are probably wrong but can only be verified in Google Cloud, such as a bucket without a
    grant."""
    return [*_find_ungranted(settings), *_find_unlisted(settings)]


def _find_ungranted(settings: Settings) -> Iterator[FieldError]:
    needed: dict[str, list[str]] = {}
    for name, job in settings.training_jobs.items():
        folders = token_folders(job.data) if job.data else {}
        data = [(f"{setting}.path", folder.path) for setting, folder in folders.items()]
        for setting, path in (*data, ("initial_weights", job.initial_weights or "")):
            if path.startswith(f"gs://{settings.checkpoint_bucket}/"):
                yield from _find_unreadable(settings, job, setting, path)
            elif path.startswith("gs://"):
                needed.setdefault(path.removeprefix("gs://").partition("/")[0], []).append(f"{setting} of job {name}")
            elif path.startswith(f"{DATASETS_FOLDER}/") and settings.mounted_bucket is None:
                expected = f"true, since {setting} of job {name} is in {DATASETS_FOLDER}"
                yield FieldError("datasets.mount", expected, "false", "write datasets.mount: true, or a gs:// path")
    for bucket, users in needed.items():
        if bucket != settings.dataset_bucket:
            yield FieldError(
                "datasets.bucket",
                f"{bucket}, which contains {' and '.join(users)}",
                settings.dataset_bucket or "nothing",
                f"write datasets.bucket: {bucket}; the stack grants trainers no other bucket,"
                " and without a grant of your own the job fails after its chips have been provided",
            )


def _find_unreadable(settings: Settings, job: JobSettings, setting: str, path: str) -> Iterator[FieldError]:
    own = settings.written_folders[settings.team_of(job).namespace]
    within = path.removeprefix(f"gs://{settings.checkpoint_bucket}/")
    if not any(f"{within}/".startswith(f"{folder}/") for folder in own):
        expected = f"a folder of the checkpoint bucket that the pods of job {job.name} can read: {' or '.join(own)}"
        fix = f"move it to gs://{settings.checkpoint_bucket}/{own[0]}, or to a bucket that datasets.bucket names"
        yield FieldError(setting, expected, within, fix)


def _find_unlisted(settings: Settings) -> Iterator[FieldError]:
    cloud = settings.cloud
    for name, group in settings.slices.items():
        rows = [row for row in price_table().prices if row.generation == group.generation]
        zone = group.zone_in(cloud)
        here = [row for row in rows if row.place in (cloud.region, zone)]
        if rows and not here and name not in settings.prices.usd_per_chip_hour:
            places = ", ".join(sorted({row.place for row in rows}))
            yield FieldError(
                f"slices.{name}.zone" if group.zone else "cloud.zone",
                f"a zone with {group.generation} chips for slices.{name}; they are listed in {places}",
                f"{zone}, for which no price is listed",
                f"check: gcloud compute machine-types list --zones={zone} --filter=name={group.shape.machine_type}",
            )

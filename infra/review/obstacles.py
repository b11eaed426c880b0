"""Obstacles that prevent a valid stack from being brought up: its time is over, example values are left, or a change
would take from slices and jobs what they need. It also finds doubtful values."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Network
from typing import Any

from infra.stack.command_lines import command_line
from infra.stack.cost import price_table
from infra.stack.kueue import flavor_name
from infra.stack.settings.errors import FieldError
from infra.stack.settings.jobs import JobSettings
from infra.stack.settings.schema import DATASETS_FOLDER, Budget, Cloud, SliceGroup
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


type Texts = Mapping[str, str]
"""Settings as text, by path."""
_WIDENED_IN_PLACE = "network.nodes"
_EXISTING, _LOCATION = "cluster.existing.name", "cluster.existing.location"
_TEAMS = "teams/"
"""Prefix of the teams in the slice dependencies. No node pool has such a name."""


@dataclass(frozen=True)
class Loss:
    """Resources that a change removes."""

    reasons: tuple[str, ...]
    pools: tuple[str, ...] | None
    """Names of node pools. `None` for all of them, together with the cluster."""
    namespaces: tuple[str, ...] = ()
    """Namespaces whose jobs lose their queue, files or controllers, or are deleted."""
    quotas: tuple[tuple[str, str], ...] = ()
    """ClusterQueues and flavors. Kueue no longer counts the chips of jobs that hold such a quota."""


def slice_dependencies(settings: Settings) -> dict[str, Texts]:
    """Return what slices and running jobs depend on: settings of the cluster under the empty name, then of node pools
    by name, then of teams."""
    pools = {
        f"{name}-{index}": group_texts(name, group, settings.cloud)
        for name, group in settings.slices.items()
        for index in range(group.count)
    }
    # Sections that are not there leave no text, so that the record of an older stack stays as it is.
    network = settings.network.model_dump(exclude={"existing"} if settings.network.existing is None else None)
    places = {"cloud": settings.cloud.model_dump(), "network": network}
    names = {"cluster.name": settings.cluster.name, "second networks": str(settings.second_network)}
    found = settings.cluster.existing
    existing = {_EXISTING: found.name, _LOCATION: found.location} if found else {}
    teams = {f"{_TEAMS}{name}": _of_team(settings, name) for name in settings.teams}
    return {"": _flat("", places) | names | existing, **pools, **teams}


def cluster_query(place: Texts) -> dict[str, str]:
    """Return name, location and project of the stack's cluster. `place` has the slice dependencies on the cluster."""
    return {
        "name": place.get(_EXISTING, place["cluster.name"]),
        "location": place.get(_LOCATION, place["cloud.region"]),
        "project": place["cloud.project"],
    }


def loss(old: Mapping[str, Texts], new: Mapping[str, Texts]) -> Loss:
    """Return what the change of slice dependencies removes."""
    of_cluster = tuple(_changes(old[""], new[""]))
    if of_cluster:
        return Loss(of_cluster, None)
    reasons: dict[str, None] = {}
    pools: list[str] = []
    for pool in sorted(key for key in old if key and not key.startswith(_TEAMS)):
        found = list(_changes(old[pool], new[pool])) if pool in new else [f"node pool {pool} is removed"]
        reasons |= dict.fromkeys(found)
        pools += [pool] if found else []
    namespaces: list[str] = []
    quotas: list[tuple[str, str]] = []
    for key in sorted(key for key in old if key.startswith(_TEAMS)):
        team, before, after = key.removeprefix(_TEAMS), old[key], new.get(key, {})
        # What is added takes nothing away.
        lost = {path: text for path, text in before.items() if text != after.get(path)}
        of_quota = {path: flavor for path, flavor in lost.items() if path.startswith(f"teams.{team}.quota.")}
        quotas += [(team, flavor) for flavor in of_quota.values()]
        namespaces += [before[f"teams.{team}.namespace"]] if lost.keys() - of_quota.keys() else []
        reasons |= dict.fromkeys(_changes(lost, after, lost) if after else [f"team {team} is removed"])
    return Loss(tuple(reasons), tuple(pools), tuple(namespaces), tuple(quotas))


def _of_team(settings: Settings, name: str) -> Texts:
    team, groups, cluster = settings.teams[name], settings.slices, settings.cluster
    quota = {group: flavor_name(group, groups[group], settings.scheduling.placement) for group in team.quota}
    on_hosts = {"pods on the network of their host": "allowed"} if name in settings.host_network_teams else {}
    datasets = settings.datasets.model_dump(exclude_defaults=True) if settings.datasets else {}
    found = cluster.existing.model_dump(include={"jobset", "kueue"}) if cluster.existing else {}
    installed = {controller: how for controller, how in found.items() if how == "install"}
    return {
        **_flat(f"teams.{name}", {"namespace": team.namespace, "quota": quota, **on_hosts}),
        **_flat("datasets", datasets),
        **_flat("cluster.existing", installed),
    }


def group_texts(name: str, group: SliceGroup, cloud: Cloud) -> Texts:
    """Return what the slices of a group depend on."""
    # An explicit zone in which the slices already are changes nothing.
    elsewhere = {"zone": group.zone} if group.zone_in(cloud) != cloud.zone else {}
    existing = {"existing": True} if group.existing else {}
    return _flat(f"slices.{name}", group.model_dump(exclude={"count", "zone", "existing"}) | elsewhere | existing)


def _flat(path: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        return {path: str(value)}
    prefix = f"{path}." if path else ""
    return {key: text for name, item in value.items() for key, text in _flat(f"{prefix}{name}", item).items()}


def _changes(old: Texts, new: Texts, keys: Collection[str] | None = None) -> Iterator[str]:
    for key in sorted({*old, *new} if keys is None else keys):
        before, after = old.get(key), new.get(key)
        widened = key == _WIDENED_IN_PLACE and before and after and IPv4Network(after).supernet_of(IPv4Network(before))
        if before != after and not widened:
            yield f"{key}: {before or 'not set'} -> {after or 'not set'}"

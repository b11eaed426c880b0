"""The values that a first stack needs, and the stack file that they become.

`multislice init` asks for them and writes the file. After `pulumi new`, the stack file has only these values.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Literal, cast

from pydantic import TypeAdapter, ValidationError

from infra.stack.settings.errors import FieldError, from_validation, missing_key, nearest, unknown_key
from infra.stack.settings.schema import SliceGroup
from infra.stack.settings.stack import Settings
from infra.stack.settings.values import ZONES, ClusterName, ProjectName
from infra.stack.tpu import SliceShape, generations, interpret, resolve
from workloads.spec import Spec, load_preset

TEAM, JOB = "research", "tiny"
"""Names of the team and the job. The job's preset has the same name."""
_STAND_IN_REGION = "us-east5"
"""Region in place of a missing one, so that the other values are checked."""
_HOSTS_OF_SMALL_MACHINE = 2000
"""Number of TPU hosts from which the controllers need the larger machine (`infra.stack.controllers`)."""


class Starter(Spec):
    """The values that a first stack needs."""

    project: ProjectName
    """Google Cloud project."""
    region: str
    """Region of the cluster."""
    zone: str
    """Zone of the slices."""
    generation: str
    """Generation of the chips, such as v6e. Its other names, such as trillium, are understood."""
    topology: str
    """Topology of a slice, such as 4x4, or Cloud TPU's name of the slice, such as v6e-16."""
    capacity: Literal["on-demand", "spot"] = "spot"
    """Source of the chips."""


_SOURCES: Mapping[str, frozenset[str]] = {
    "cloud.region": frozenset(("region", "zone")),
    "cloud.zone": frozenset(("region", "zone")),
    "slices": frozenset(("generation", "topology")),
}
"""Values of the starter from which a section, or a value of it, is made."""
_BETWEEN = ("teams", "job")
"""Sections that only another section of the file can make wrong."""


@dataclass(frozen=True)
class Expanded:
    """The values of a stack file by section, with sections in place of the values of a starter."""

    sections: Mapping[str, object]
    derived: frozenset[str] = frozenset()
    """Sections that the starter became. Empty: the file has no starter."""
    faults: tuple[FieldError, ...] = ()
    """Errors of the starter's values. The sections then have stand-ins for the wrong ones."""
    stand_ins: frozenset[str] = frozenset()
    """Names of the values that the file lacks, or has wrong."""

    def is_certain(self, error: FieldError) -> bool:
        """Return whether an error of a derived section does not depend on a stand-in."""
        path, _, _ = error.path.partition(".")
        sources = _SOURCES.get(error.path) or _SOURCES.get(path)
        return path in self.derived and sources is not None and not sources & self.stand_ins

    def as_written(self, error: FieldError) -> FieldError:
        """Return an error of a section as one of the starter's value that the section is from."""
        section = error.path.partition(".")[0]
        if section not in self.derived:
            return error
        if error.path == "cluster.name":
            return replace(error, path="the stack", fix="rename it, or write the section cluster", meant="")
        if section == "slices":
            return replace(error, path="generation, topology")
        if section in _BETWEEN:
            return replace(error, path=section, fix=f"write the section {section} so that it fits the other sections")
        plain = {"path": error.path, "expected": error.expected, "fix": error.fix}
        return replace(error, **{key: text.replace("cloud.", "") for key, text in plain.items()})


def expand(values: Mapping[str, object], stack: str) -> Expanded:
    """Return the values of a stack file by section, with sections in place of the values of a starter.

    Sections that the file has as well replace those of the starter. `stack` is the name of the stack. A value with a
    misspelt name is read anyway, so that it is not also reported as missing.
    """
    given: dict[str, object] = {name: values[name] for name in Starter.model_fields if name in values}
    if not given:
        return Expanded(values)
    known = [*Starter.model_fields, *Settings.model_fields]
    meant = {key: nearest(key, known) for key in values if key not in (*known, "job")}
    misspelt = {key: name for key, name in meant.items() if name in Starter.model_fields.keys() - given.keys()}
    faults = [unknown_key("", key, Starter.model_fields) for key in misspelt]
    faults += [_no_section(key) for key, name in meant.items() if not name]
    given |= {name: values[key] for key, name in misspelt.items()}
    starter, wrong = read_starter(given)
    required = [name for name, field in Starter.model_fields.items() if field.is_required()]
    faults += [*wrong, *(missing_key(name) for name in required if name not in given)]
    strange = {key for key, name in meant.items() if not name}
    written = {name: value for name, value in values.items() if name not in (*given, *misspelt, *strange)}
    found = sections(starter, cluster_of(stack))
    if "jobs" in written:
        del found["job"]
    elif "teams" in written:
        # If the file has one team, it is that of the job.
        found["job"] = {key: value for key, value in cast(Mapping[str, object], found["job"]).items() if key != "team"}
    stand_ins = {each.path for each in wrong} | (set(required) - given.keys())
    return Expanded(found | written, frozenset(found.keys() - written.keys()), tuple(faults), frozenset(stand_ins))


def _no_section(key: str) -> FieldError:
    error = unknown_key("", key, Starter.model_fields)
    if key not in SliceGroup.model_fields:
        return error
    fix = f"write the section slices, which has {key}; stacks/Pulumi.prod.yaml is an example"
    return replace(error, fix=fix, meant="")


def read_starter(given: Mapping[str, object]) -> tuple[Starter, list[FieldError]]:
    """Return a starter with stand-ins for missing and wrong values, and the errors of the wrong ones."""
    region, zone = (given[key] if isinstance(given.get(key), str) else "" for key in ("region", "zone"))
    zone = str(zone or f"{region or _STAND_IN_REGION}-b")
    values: dict[str, object] = {
        "project": "stand-in",
        "generation": "v6e",
        "topology": "2x4",
        "zone": zone,
        # A region that is given as the zone is an error of the zone alone.
        "region": region or (zone if zone in ZONES else zone.rpartition("-")[0]) or _STAND_IN_REGION,
    }
    try:
        return Starter.model_validate({**values, **given}), []
    except ValidationError as error:
        wrong = from_validation(error, "", Starter)
    right = {key: value for key, value in given.items() if key not in {each.path for each in wrong}}
    return Starter.model_validate(values | right), wrong


def cluster_of(stack: str) -> str:
    """Return the name of the cluster of a stack: `multislice-STACK`, or `STACK` if that is no name of a cluster.

    So a name of the stack that is too long or has other characters is reported as the user wrote it.
    """
    try:
        return TypeAdapter(ClusterName).validate_python(f"multislice-{stack}")
    except ValidationError:
        return stack


def sections(starter: Starter, cluster: str) -> dict[str, object]:
    """Return the sections of a stack file with one team and one small training job on slices of that shape.

    `cluster` is the name of the cluster. The stack has two slices, or one if a slice has one host, because only
    multi-host slices can be joined. A slice that GKE does not offer stays as written: `infra.stack.settings.read`
    reports it.
    """
    generation, topology = interpret(starter.generation, starter.topology)
    try:
        shape = resolve(generation, topology)
    except ValueError:
        shape = None
    count = 2 if shape and shape.multi_host else 1
    name = group_name(generation)
    large = shape and count * shape.hosts >= _HOSTS_OF_SMALL_MACHINE
    group = {"generation": generation, "topology": topology, "count": count, "capacity": starter.capacity}
    return {
        "cloud": {"project": starter.project, "region": starter.region, "zone": starter.zone},
        "cluster": {
            "name": cluster,
            "release_channel": "REGULAR",
            "deletion_protection": False,
            "system_machine_type": "e2-standard-16" if large else "e2-standard-4",
            "system_nodes": 1,
        },
        "slices": {name: group},
        "teams": {TEAM: {"namespace": TEAM, "quota": {name: count * shape.chips if shape else 0}}},
        "image": {"build": True},
        "job": {
            "name": JOB,
            "team": TEAM,
            "slices": {"group": name, "count": count},
            "preset": JOB,
            **(_sizes(count, shape) if shape else {}),
            "priority": "normal",
            "max_restarts": 3,
            "existing_run": "resume",
        },
    }


def group_name(generation: str) -> str:
    """Return the name of the slice group: Google's name of the generation, such as trillium, or else its own."""
    names = [name for known in generations() if known.name == generation for name in known.other_names]
    return next((name for name in names if name.isalpha()), generation)


def _sizes(count: int, shape: SliceShape) -> dict[str, object]:
    """Return what the job must change of its preset for large slices: a sequence for each device, and the mesh."""
    preset, devices = load_preset(JOB), count * shape.devices
    if devices <= preset.training.global_batch:
        return {}
    # The smallest array of the model is split over the slice.
    fsdp = gcd(shape.devices, preset.model.embed_dim)
    sizes: dict[str, object] = {"training": {"global_batch": devices}}
    return sizes if fsdp == shape.devices else {**sizes, "mesh": {"replica": devices // fsdp, "fsdp": fsdp}}

"""The values that a first stack needs, and the stack file that they become.

`multislice init` asks for them and writes the file. After `pulumi new`, the stack file has only these values.
"""

from collections.abc import Mapping
from math import gcd
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from infra.settings.errors import SettingsError, from_validation
from infra.settings.values import ClusterName, ProjectName
from infra.tpu import SliceShape, generations, interpret, resolve
from workloads.spec import Spec, load_preset

TEAM, JOB = "research", "tiny"
"""Names of the team and the job. The job's preset has the same name."""
_HOSTS_OF_SMALL_MACHINE = 2000
"""Number of TPU hosts from which the controllers need the larger machine (`infra.controllers`)."""


class Starter(Spec):
    """The values that a first stack needs."""

    project: ProjectName
    """Google Cloud project."""
    region: str
    zone: str
    generation: str
    """Generation of the chips, such as v6e. Its other names, such as trillium, are understood."""
    topology: str
    """Topology of a slice, such as 4x4, or Cloud TPU's name of the slice, such as v6e-16."""
    capacity: Literal["on-demand", "spot"] = "spot"


def expand(values: Mapping[str, object], stack: str) -> dict[str, object]:
    """Return the values of a stack file by section, with sections in place of the values of a starter.

    Sections that the file has as well replace those of the starter. `stack` is the name of the stack.

    Raises:
        SettingsError: a value of the starter is missing or wrong.
    """
    given = {name: values[name] for name in Starter.model_fields if name in values}
    if not given:
        return dict(values)
    try:
        starter = Starter.model_validate(given)
    except ValidationError as error:
        raise SettingsError(from_validation(error, "", Starter)) from None
    written = {name: value for name, value in values.items() if name not in given}
    found = sections(starter, cluster_of(stack))
    if "jobs" in written:
        del found["job"]
    return found | written


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
    multi-host slices can be joined. A slice that GKE does not offer stays as written: `infra.settings.read` reports it.
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

"""An environment's stack file, made from that of its source.

Owns which settings an environment has of its own: the names by which Google Cloud tells stacks of a project apart, and
its end. All else is the source's, the job and its image too: pods pull it from the source's repository, and train into
a bucket of their own. Pure.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cli.environments.files import Names
from cli.stack_file import PREFIX
from infra.settings.errors import FieldError, expectation
from infra.settings.schema import Environment
from infra.settings.values import ClusterName

LONGEST = timedelta(days=7)
"""What lives longer is no environment: write a stack file for it."""

_LIFETIME = re.compile(r"([1-9][0-9]{0,4})([mhd])")
_UNITS = {"m": timedelta(minutes=1), "h": timedelta(hours=1), "d": timedelta(days=1)}


def lifetime(text: str) -> timedelta | FieldError:
    """The time that a text such as 8h stands for, or what is wrong with it."""
    found = _LIFETIME.fullmatch(text)
    if found and (time := int(found[1]) * _UNITS[found[2]]) <= LONGEST:
        return time
    expected = f"minutes, hours or days of at most {LONGEST.days} days, such as 90m, 8h or 2d"
    return FieldError("--ttl", expected, repr(text), "give a shorter time" if found else "write it so")


def name_fault(name: str) -> FieldError | None:
    """What is wrong with the name itself: it becomes that of the cluster."""
    try:
        TypeAdapter(ClusterName).validate_python(name)
    except ValidationError as error:
        return FieldError("NAME", expectation(error.errors()[0]["msg"]), repr(name), "choose another")
    return None


def written(instant: datetime) -> str:
    """A time as a stack file has it."""
    return f"{instant:%Y-%m-%dT%H:%M:%SZ}"


def derived(content: Mapping[str, Any], name: str, environment: Environment) -> dict[str, Any]:
    """The content of the environment's stack file; `content` is that of its source, which is valid.

    What Pulumi encrypts secrets with is kept, so that those of the source can be read.
    """
    config = dict(content["config"])
    cluster, teams = config[f"{PREFIX}cluster"], config[f"{PREFIX}teams"]
    own = {
        "cluster": {**cluster, "name": name, "deletion_protection": False},
        "teams": {team: {**section, "namespace": f"{name}-{section['namespace']}"} for team, section in teams.items()},
        "environment": environment.model_dump(),
    }
    return {**content, "config": config | {f"{PREFIX}{section}": value for section, value in own.items()}}


def collisions(name: str, own: Names, others: Mapping[str, Names], unknown: Collection[str]) -> Iterator[FieldError]:
    """Names that the environment would share with another stack of its project.

    `unknown` are stacks of which nothing but their names is known: environments that were made elsewhere.
    """
    near = {stack: names for stack, names in others.items() if names.cloud.project == own.cloud.project}
    clusters = {stack: names.cluster.name for stack, names in near.items()} | {stack: stack for stack in unknown}
    for stack, cluster in clusters.items():
        # Names of networks and placements are the cluster's with a word behind it.
        if f"{cluster}-".startswith(f"{name}-") or f"{name}-".startswith(f"{cluster}-"):
            yield FieldError(
                "NAME",
                f"a name that does not begin that of another cluster, nor begins with it; stack {stack} has {cluster}",
                repr(name),
                "choose another",
            )
    for stack, names in near.items():
        shared = sorted(names.namespaces & own.namespaces)
        if shared:
            yield FieldError(
                "NAME",
                f"namespaces that no other stack has; {stack} has {', '.join(shared)}",
                repr(name),
                "choose another",
            )

"""What a job runs, as its JobSet tells it."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from cli.observed.objects import Object
from workloads.spec import CALL_SPEC_VARIABLE, JOB_SPEC_VARIABLE


class Kind(StrEnum):
    """Of a job, whether a stack declares it or somebody submitted it by hand."""

    TRAINING = "training"
    """The trainer of this repository."""
    FUNCTION = "function"
    """A call of a function."""
    CONTAINER = "container"
    """A program of its own: it keeps no files that are known here, and its exit codes are its own."""


def kind_of(jobset: Object) -> Kind:
    """By what its containers are told."""
    names = {variable["name"] for variable in variables(jobset)}
    if JOB_SPEC_VARIABLE in names:
        return Kind.TRAINING
    return Kind.FUNCTION if CALL_SPEC_VARIABLE in names else Kind.CONTAINER


def variables(jobset: Object) -> Iterator[dict[str, Any]]:
    """The environment variables of all containers of a JobSet."""
    for replicated in jobset["spec"]["replicatedJobs"]:
        for container in replicated["template"]["spec"]["template"]["spec"]["containers"]:
            yield from container.get("env") or []

"""`multislice review` shows the price of a stack, and whether its jobs are admitted, fit in memory and are fast.

It reads the stack file, the cache of preflights and files about the deployed stack. It uses no engine and no cluster,
except for a job that a member submits: then it reads the workloads that the member may see.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, write
from infra.review.admission.rehearsal import without_deleted
from infra.review.answers import answers, find_obstacles, tables
from infra.review.review import Known, Review
from infra.review.review import review as made
from infra.stack.cost import BILL_OUTPUT, Bill, read_bill
from infra.stack.names import WORKLOADS
from infra.stack.settings.stack import Settings
from infra.stack.submission import job_specs
from workloads.preflight_result import cache_folder, cached_all

if TYPE_CHECKING:
    from infra.cluster.kubernetes import ApiServer, Json
    from infra.stack.published import Published

_MAKE_OUTPUTS = "pulumi stack output --json"
_MAKE_WORKLOADS = "kubectl get workloads -A -o json"


class _Metadata(TypedDict):
    name: str
    namespace: str
    uid: str


class _PodSet(TypedDict):
    name: str
    count: int
    template: dict[str, Any]


class _WorkloadSpec(TypedDict):
    podSets: list[_PodSet]


class _Workload(TypedDict):
    """What every Workload of a cluster has, and an edited file may lack."""

    metadata: _Metadata
    spec: _WorkloadSpec


def review(
    stack: str, outputs: Path | None, workloads: Path | None, form: Form, console: Console, *, verbose: bool = False
) -> int:
    """Print the review of a stack, as text without its tables unless `verbose`. Return the exit status.

    `outputs` is a file with the output of `pulumi stack output --json`, `workloads` one with that of `kubectl get
    workloads -A -o json`.
    """
    found = review_of(stack_file.find(stack), outputs, workloads)
    details = tables(found) if verbose or form is Form.MARKDOWN else []
    write(found.model_dump_json(indent=1), [*answers(found), *details], form, console)
    return NEGATIVE if [*find_obstacles(found)] else 0


def review_of(path: Path, outputs: Path | None = None, workloads: Path | None = None) -> Review:
    """Return the review of a stack file, with the two files of `review`."""
    settings = stack_file.read(path)
    deployed = _deployed(outputs) if outputs else None
    live = without_deleted(settings, _workloads(workloads)) if workloads else None
    return made(stack_file.stack_name(path), settings, _known(settings, deployed, live))


def _known(settings: Settings, deployed: Bill | None, workloads: Sequence[Mapping[str, Any]] | None) -> Known:
    preflights = cached_all(job_specs(settings), cache_folder(os.environ))
    return Known(at=datetime.now(UTC), preflights=preflights, deployed=deployed, workloads=workloads)


def _deployed(path: Path) -> Bill:
    content = _object(path, _MAKE_OUTPUTS)
    found = read_bill(content.get(BILL_OUTPUT))
    if found is None:
        got = "another format" if BILL_OUTPUT in content else ", ".join(sorted(content)) or "nothing"
        raise Halt(
            f"{path} must have the output {BILL_OUTPUT!r} in the format of this version of the program, got {got};"
            " deploy the stack, or omit the option"
        )
    return found


def _workloads(path: Path) -> Sequence[Mapping[str, Any]]:
    content = _object(path, _MAKE_WORKLOADS)
    items = content.get("items")
    if not isinstance(items, list):
        got = ", ".join(sorted(content)) or "nothing"
        raise Halt(f"{path} must be a list of objects, got {got}; create it with {_MAKE_WORKLOADS}")
    if [item for item in items if not isinstance(item, dict) or item.get("kind") != "Workload"]:
        raise Halt(f"{path} must be a list of only Workloads; create it with {_MAKE_WORKLOADS}")
    try:
        TypeAdapter(list[_Workload]).validate_python(items)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise Halt(
            f"{path} must be a list of whole Workloads, but items.{where} is missing or is of another type;"
            f" create it with {_MAKE_WORKLOADS}"
        ) from None
    return items


def _object(path: Path, command: str) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise Halt(f"{path} must be JSON, got: {error}; create it with {command}") from None
    if not isinstance(content, dict):
        raise Halt(f"{path} must be a JSON object, got {type(content).__name__}; create it with {command}")
    return content


_OTHERS_HIDDEN = "simulated without the jobs of other teams, which you cannot see"


def review_submission(api: "ApiServer", published: "Published", settings: Settings) -> Review:
    """Return price and simulated admission of the jobs in `settings` next to the workloads that this user may see.

    Raise Halt if the cluster does not list them.
    """
    live, hidden = _visible_workloads(api, published.namespace)
    found = made(published.stack, settings, _known(settings, None, live))
    if not hidden:
        return found
    jobs = [
        job.model_copy(update={"admission": job.admission.model_copy(update={"assumed": _OTHERS_HIDDEN})})
        for job in found.jobs
    ]
    return found.model_copy(update={"jobs": tuple(jobs)})


def _visible_workloads(api: "ApiServer", namespace: str) -> "tuple[list[Json], bool]":
    """Return the Workloads of the cluster, or of the namespace only, and whether others are hidden from this user."""
    # Other reviews need no cluster.
    from infra.cluster.kubernetes import FORBIDDEN, UNREACHABLE, ApiError
    from infra.cluster.running_jobs import workloads

    try:
        try:
            return workloads(api), False
        except ApiError as error:
            if error.status != FORBIDDEN:
                raise
            return api.request("GET", WORKLOADS.format(namespace))["items"], True
    except UNREACHABLE as error:
        raise Halt(f"expected the cluster to list the jobs of the queue, got: {error}") from None

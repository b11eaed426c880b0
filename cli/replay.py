"""`multislice replay` replays a trace of jobs on the queues of a stack file or a cluster. It changes nothing."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from cli import stack_file
from cli.answer import NEGATIVE, Form, Halt, as_json, waiting, write
from cli.rehearse.rehearse import fair_sharing, no_answer
from cli.stack_file import default_stack
from infra.cluster import kueue_objects
from infra.cluster.kubernetes import UNREACHABLE, ApiServer
from infra.cluster.kueue_objects import KueueObjects, NoKueueError, price
from infra.review.replay.fleet import Fleet, fleet_of_cluster, fleet_of_stack
from infra.review.replay.results import summarize, tables
from infra.review.replay.search import BoundsError, axes, missed, search, search_tables
from infra.review.replay.simulation import Conditions, replay
from infra.review.replay.trace import (
    Distribution,
    Trace,
    TraceError,
    check_size,
    draw,
    misplaced,
    places,
    read_csv,
    write_csv,
)
from infra.review.replay.workloads import read_workloads
from infra.stack.manifests import Object
from infra.stack.settings.errors import FieldError, count_errors, from_validation
from infra.stack.settings.yaml_file import read_yaml, shown

_MAX_ERRORS = 50
_SPOT = "Google's interruptions of spot are not simulated; include them in --failures-per-day"
_KINDS = "a .csv, .json or .yaml file"


@dataclass(frozen=True)
class Asked:
    """What to replay."""

    trace: Path | None
    stacks: tuple[str | None, str | None]
    """Stack with the queues, and one to compare with. `None`: not named."""
    cluster: tuple[str | None, str | None]
    """Kubeconfig and context, each `None` for kubectl's default. Without both, a stack file has the queues."""
    days: float | None
    save_hours: float | None
    starved_hours: float
    conditions: Conditions
    page: Path | None
    save_trace: Path | None
    bounds: Sequence[str]
    """What to search, if anything."""
    p90_hours: float | None


def command(asked: Asked, form: Form, console: Console) -> int:
    """Print what happens to the jobs of a trace. Return the exit status.

    Raise Halt with all errors of the trace, or if a file or the cluster cannot be read.
    """
    if asked.bounds and asked.page:
        raise Halt("expected at most one of --search and --page, got both; a search draws no charts")
    if asked.p90_hours is not None and not asked.bounds:
        raise Halt("expected --search with --p90-hours, got none; add what to search")
    objects = _objects(asked) if any(asked.cluster) else None
    if objects and all(asked.stacks):
        raise Halt("expected at most one of --stack and --against with a cluster's own queues, got both")
    fleets = _fleets(asked, objects)
    trace = _trace(asked, objects, fleets)
    if asked.save_trace:
        _save(asked.save_trace, lambda path: write_csv(trace, path))
    if asked.bounds:
        return _search(trace, fleets[-1], asked, form, console)
    with waiting("replaying"):
        found = [replay(trace, fleet, asked.conditions, places(trace, fleet)) for fleet in fleets]
    summaries = [summarize(each, asked.starved_hours) for each in found]
    answer = {
        "trace": {"source": trace.source, "jobs": len(trace.jobs), "days": trace.hours / 24, "notes": trace.notes}
    }
    notes = _notes(trace, fleets, asked.conditions)
    if asked.page:
        # Only a page needs the modules of the charts.
        from cli.replay_page import page

        _save(asked.page, lambda path: path.write_text(page(found, summaries, notes)))
    content = as_json(answer | {"replays": [each.model_dump() for each in summaries]})
    write(content, tables(summaries, notes), form, console)
    return NEGATIVE if summaries[-1].starved else 0


def _save(path: Path, written: Callable[[Path], object]) -> None:
    try:
        written(path)
    except OSError as error:
        raise Halt(f"expected a file that can be written at {path}, got: {error.strerror}") from None


def _search(trace: Trace, fleet: Fleet, asked: Asked, form: Form, console: Console) -> int:
    given, p90_hours = asked.conditions, asked.p90_hours
    try:
        found = search(trace, fleet, given, axes(asked.bounds, fleet, given.spares), p90_hours, asked.starved_hours)
    except BoundsError as error:
        raise Halt(str(error)) from None
    best = [{"changes": each.changes, "summary": each.summary.model_dump()} for each in found.best]
    tried = {"tried": found.tried, "possible": found.possible, "seconds": round(found.seconds, 1), "best": best}
    write(as_json(tried), search_tables(found, p90_hours, _notes(trace, [fleet], given)), form, console)
    return NEGATIVE if missed(found, p90_hours) else 0


def _notes(trace: Trace, fleets: Sequence[Fleet], conditions: Conditions) -> list[str]:
    assumed = (
        f"{len(trace.jobs)} jobs of {trace.source} in {trace.hours / 24:g} days, seed {conditions.seed};"
        f" {conditions.failures_per_day:g} failures of a slice per day, {conditions.spares} spare slices of each group"
    )
    spot = any(group.spot for fleet in fleets for group in fleet.groups.values())
    return [assumed, *([_SPOT] if spot else []), *trace.notes]


def _refused(path: Path | None, error: TraceError) -> Halt:
    name = shown(path) if path else "the cluster"
    lines = [f"{name}:{row}: {text}" for row, text in error.errors[:_MAX_ERRORS]]
    return Halt("\n".join([*lines, f"{count_errors(len(error.errors))} in {name}"]))


def _objects(asked: Asked) -> KueueObjects:
    try:
        api, namespace = ApiServer.of_kubeconfig(*asked.cluster)
        with waiting("reading the queues"):
            return kueue_objects.read(api, namespace)
    except (*UNREACHABLE, NoKueueError) as error:
        raise no_answer(error) from None


def _trace(asked: Asked, objects: KueueObjects | None, fleets: Sequence[Fleet]) -> Trace:
    path, found = asked.trace, None
    try:
        found = _read(asked, objects, fleets)
        jobs, errors = found.jobs, list[tuple[int, str]]()
    except TraceError as error:
        jobs, errors = error.jobs, error.errors
    except OSError as error:
        raise Halt(f"expected a trace in {_KINDS} at {path}, got: {error.strerror}") from None
    errors = [*errors, *(each for fleet in fleets for each in misplaced(jobs, fleet))]
    if found is None or errors:
        raise _refused(path, TraceError(errors)) from None
    return found


def _read(asked: Asked, objects: KueueObjects | None, fleets: Sequence[Fleet]) -> Trace:
    path = asked.trace
    if path is None:
        return _live_trace(asked, objects)
    match path.suffix:
        case ".csv":
            return read_csv(path, asked.days)
        case ".json":
            flavors = objects.lists["resourceflavors"] if objects else ()
            return read_workloads(_items(path), path.name, asked.days, asked.save_hours, flavors)
        case ".yaml" | ".yml":
            return _drawn(path, asked, fleets)
        case _:
            raise Halt(f"expected a trace in {_KINDS}, got {shown(path)}; rename it")


def _live_trace(asked: Asked, objects: KueueObjects | None) -> Trace:
    if objects is None:
        raise Halt("expected a trace, or --kubeconfig or --context of a cluster whose Workloads are one, got neither")
    if right := objects.refused.get("workloads"):
        raise Halt(f"expected a user who may {right}, because these are the trace; pass a trace")
    # Lists leave out the kind of their items.
    items: list[Object] = [{**item, "kind": "Workload"} for item in objects.lists["workloads"]]
    flavors = objects.lists["resourceflavors"]
    return read_workloads(items, "the cluster's Workloads", asked.days, asked.save_hours, flavors, time.time())


def _items(path: Path) -> Sequence[Object]:
    check_size(path)
    expected = "a list of objects, as of `kubectl get workloads,events,resourceflavors -A -o json`"
    try:
        content: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise TraceError([(1, f"expected {expected}, got: {error}")]) from None
    items = content.get("items") if isinstance(content, dict) else None
    if not isinstance(items, list) or not all(isinstance(each, dict) for each in items):
        raise TraceError([(1, f"expected {expected}, got no `items`")])
    return items


def _drawn(path: Path, asked: Asked, fleets: Sequence[Fleet]) -> Trace:
    file = stack_file.opened_by(read_yaml, path, "the keys `days` and `jobs`")
    try:
        distribution = Distribution.model_validate(file.content)
        errors = [
            FieldError(
                f"jobs.{number}.{place[0]}", f"{place[1]} in {fleet.name}", repr(getattr(each, place[0])), "correct it"
            )
            for fleet in fleets
            for number, each in enumerate(distribution.jobs)
            if isinstance(place := fleet.place(each.team, each.shape), tuple)
        ]
    except ValidationError as error:
        errors = from_validation(error, "", Distribution)
        distribution = None
    if file.errors or errors or distribution is None:
        lines = [line.replace("the stack file", "this file") for line in file.report(errors)]
        raise Halt("\n".join([*lines, f"{count_errors(len(lines))} in {shown(path)}"]))
    if asked.days:
        distribution = distribution.model_copy(update={"days": asked.days})
    return draw(distribution, asked.conditions.seed)


def _fleets(asked: Asked, objects: KueueObjects | None) -> list[Fleet]:
    """Return the fleets to compare: the cluster's own queues if there is one, and the named stacks."""
    stack, against = asked.stacks
    names = [name for name in (stack, against) if name]
    if objects is None and not stack:
        names.insert(0, default_stack(else_cluster=False))
    own = [_cluster_fleet(objects)] if objects else []
    return [*own, *(fleet_of_stack(*_settings(name)) for name in names)]


def _settings(name: str) -> tuple[str, Any]:
    path = Path(name) if name.endswith(".yaml") else stack_file.find(name)
    return stack_file.stack_name(path), stack_file.read(path)


def _cluster_fleet(objects: KueueObjects) -> Fleet:
    lists = objects.lists
    prices: dict[str, float] = {}
    for flavor in lists["resourceflavors"]:
        name = flavor["metadata"]["name"]
        found = price([(1, name, {})], lists["resourceflavors"], lists["nodes"], objects.refused.get("nodes"))
        if found.usd_per_hour is not None:
            prices[name] = found.usd_per_hour
    return fleet_of_cluster("cluster", lists, prices, fair_sharing=fair_sharing(objects)[0])

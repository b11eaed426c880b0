"""`multislice report` on a job that a kubeconfig selects: its records, or without them what the cluster tells."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime

from rich.console import Console
from rich.text import Text

from cli.answer import Halt, waiting
from cli.deployed import Deployed
from cli.observed.cluster import Reader
from cli.observed.foreign import NO_RECORDS
from cli.observed.observe import Observer, folder_of
from cli.observed.snapshot import JobStatus, Snapshot
from cli.render import counted, duration, rows_of
from cli.report import report as report_records
from infra.cluster.job_state import State
from infra.cluster.kubernetes import right
from infra.cluster.kueue_objects import Price, price
from infra.stack.cost import per_hour
from infra.stack.manifests import Condition
from infra.stack.names import ACCELERATOR_LABEL, FLAVORS, NODES
from workloads.report.command import Asked
from workloads.spec.base import Spec

_UNKNOWN = "steps, loss, goodput and dollars spent: the job keeps no records in a bucket"


class ClusterReport(Spec):
    """What the objects of a cluster tell about a job. Times are in seconds since the epoch."""

    job: str
    object: str
    """Kind of its object, such as `JobSet`."""
    state: State
    queue: str
    """ClusterQueue. Empty: it is not known."""
    queued_at: float
    admitted_at: float | None
    """Begin of its latest admission. None: it has never been admitted, or lost its quota."""
    ended_at: float | None
    held_seconds: float
    """Time for which it has held its quota: since its latest admission, and before it as far as Kueue counts it, which
    is only for a job with a maximum execution time."""
    evictions: Mapping[str, int]
    """Number of evictions, by Kueue's reason."""
    last_eviction: str
    """Kueue's message about the last one. Empty: there was none."""
    requeues: int
    """Number of times that Kueue put it back into its queue because its pods did not become ready."""
    restarts: int
    max_restarts: int
    priority: int | None
    chips: int | None
    """Chips that it requests. None: it has no Workload."""
    flavors: tuple[str, ...]
    usd_per_hour: float | None
    price_basis: str
    pods: Mapping[str, int] | None
    """Number of pods that exist now, by phase. None: they cannot be read."""
    notes: tuple[str, ...]


def report(deployed: Deployed, name: str | None, asked: Callable[[str], Asked], console: Console) -> int:
    """Report a job. Return the exit status. `asked` returns the request for a report on the records in a folder.

    Raise Halt unless it is one job, or if a page is requested of a job without records.
    """
    with waiting("reading the cluster"):
        snapshot, job = Observer(deployed).job(name)
    if folder := folder_of(deployed, job):
        return report_records(asked(folder), console)
    options = asked("")
    if options.output or options.watch:
        option = "--page" if options.output else "--watch"
        raise Halt(f"expected a job with records for {option}, but {job.ref.full_name} keeps no records in a bucket")
    found = _report(snapshot, job, _price(deployed, job))
    if options.as_json:
        console.out(found.model_dump_json(indent=1))
        return 0
    console.print(Text.assemble((found.job, "bold"), f"  {found.state}"))
    console.print(rows_of(_rows(found, snapshot.at)))
    for note in found.notes:
        console.print(Text(note, "dim"), soft_wrap=True)
    return 0


def _report(snapshot: Snapshot, job: JobStatus, cost: Price) -> ClusterReport:
    own, at = job.workload, snapshot.at
    held, evicted = own.admission(at) if own else None, own.condition("Evicted") if own else None
    return ClusterReport(
        job=job.ref.full_name,
        object=job.ref.kind,
        state=job.state,
        queue=job.ref.queue,
        queued_at=own.created if own else job.created,
        admitted_at=held[0] if held else None,
        ended_at=_ended_at(job),
        held_seconds=own.past_seconds + (held[1] if held else 0.0) if own else 0.0,
        evictions=own.evictions if own else {},
        last_eviction=_words(evicted) if evicted else "",
        requeues=own.requeues if own else 0,
        restarts=job.restarts,
        max_restarts=job.max_restarts,
        priority=own.priority if own else None,
        chips=own.chips if own else None,
        flavors=own.flavors if own else (),
        usd_per_hour=cost.usd_per_hour,
        price_basis=cost.basis,
        pods=dict(Counter(pod.phase for pod in job.pods)) if job.has_pods else None,
        notes=tuple(note for note in snapshot.notes if note != NO_RECORDS),
    )


def _ended_at(job: JobStatus) -> float | None:
    ends = (job.condition(job.terminal), job.workload.condition("Finished") if job.workload else None)
    return next((end.since for end in ends if end and end.holds), None)


def _words(evicted: Condition) -> str:
    # Once it has quota again, Kueue overwrites the reason.
    reason = f"{evicted.reason}: " if evicted.holds else ""
    return f"{reason}{evicted.message.removeprefix('Previously: ')}"


def _price(deployed: Deployed, job: JobStatus) -> Price:
    """Return the list price of the chips that a job has, from the labels of its flavors and their nodes."""
    own = job.workload
    if own is None and not job.has_workloads:
        return Price(None, "not known: its Workload cannot be read")
    if own is None or not own.flavors or not own.chips:
        return price([], [], [], None)
    flavor, *others = own.flavors
    if others:
        return Price(None, f"its chips are of several flavors: {', '.join(own.flavors)}")
    reader = Reader(deployed)
    found = reader.read([(FLAVORS, {}), (NODES, {"labelSelector": ACCELERATOR_LABEL})])
    flavors = [each for each in found[FLAVORS] if each["metadata"]["name"] == flavor]
    if not flavors:
        unread = "; ".join(note for note in reader.notes if "resourceflavors" in note)
        return Price(None, unread or f"there is no ResourceFlavor {flavor}")
    refused = None if reader.has_read(NODES) else right(NODES)
    return price([(own.chips, flavor, {})], flavors, found[NODES], refused)


def _rows(found: ClusterReport, at: float) -> Iterator[tuple[str, str]]:
    queue = f" in ClusterQueue {found.queue}" if found.queue else ""
    urgency = "" if found.priority is None else f", priority {found.priority}"
    yield "queued", f"{_time(found.queued_at)}{queue}{urgency}"
    evicted = sum(found.evictions.values()) or int(bool(found.last_eviction))
    # While it is being evicted, it still has the admission before that.
    again = evicted > (found.state is State.EVICTED)
    if found.admitted_at is not None:
        flavors = f" on flavor {', '.join(found.flavors)}" if found.flavors else ""
        # It also ran since it was queued if it was evicted.
        after = "again" if again else f"{duration(found.admitted_at - found.queued_at)} later"
        yield "admitted", f"{_time(found.admitted_at)}, {after}{flavors}"
    if found.held_seconds:
        yield "held quota", f"for {duration(found.held_seconds)}{' or more' if again else ''}"
    if found.ended_at is not None:
        yield "ended", _time(found.ended_at)
    if evicted:
        yield "evicted", "; ".join(f"{reason} {counted(count, 'time')}" for reason, count in found.evictions.items())
        yield "", f"last: {found.last_eviction}"
    if found.requeues:
        yield "requeued", f"{counted(found.requeues, 'time')}, because its pods did not become ready"
    limit = f" of at most {found.max_restarts} that count" if found.max_restarts else ""
    yield "restarts", f"{found.restarts}{limit}"
    if found.chips is not None:
        yield "chips", str(found.chips)
    yield "price", f"{per_hour(found.usd_per_hour)}: {found.price_basis}" if found.usd_per_hour else found.price_basis
    phases = "not known" if found.pods is None else ", ".join(f"{count} {phase}" for phase, count in found.pods.items())
    yield "pods", phases or "none now"
    yield "not known", _UNKNOWN


def _time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"

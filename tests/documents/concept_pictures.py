"""The pictures of docs/explanation/concepts.md: numbers from the stack `dev` as the program reads it, words from the
trainer."""

from collections.abc import Callable, Mapping

from infra.stack.kueue import flavor_name
from infra.stack.manifests import amount
from infra.stack.names import TPU_RESOURCE
from infra.stack.pods import node_labels
from infra.stack.settings.read import parse
from tests.documents.diagrams import Box, flow
from tests.infra.one_job import only_spec, only_training
from tests.infra.recording import stack_values
from workloads.spec import ExitCode

_STACK = "dev"


def stack() -> str:
    """From a slice group to the mesh."""
    settings = parse(stack_values(_STACK))
    job, spec = only_training(settings), only_spec(settings)
    name = job.slices.group
    group, slices = settings.slices[name], spec.slices
    shape = group.shape
    quota = amount(str(settings.teams[job.team].quota[name].chips))
    short_labels = [f"{key.rpartition('/')[2]}: {value}" for key, value in node_labels(name, group).items()]
    boxes = [
        Box("stack file", [f"slices.{name}", f"{group.generation} {group.topology}, count {group.count}"]),
        Box("slice", [shape.machine_type, f"{shape.hosts} hosts x {shape.chips_per_host} chips = {shape.chips}"]),
        Box("node pools", [f"{group.count}, one for each slice", f"{shape.hosts} nodes each, all or none"]),
        Box("ResourceFlavor", [flavor_name(name, group, settings.scheduling.placement), *short_labels]),
        Box(
            "ClusterQueue",
            [f"team {job.team}", f"quota: {quota:g} {TPU_RESOURCE}", f"as many as {group.count} slices have"],
        ),
        Box(
            "JobSet",
            [f"replicas {slices.count}: a Job for each slice", f"parallelism {slices.hosts}: a pod for each host"],
        ),
        Box(
            "pods",
            [f"{slices.count * slices.hosts}, on slices of their own", f"{shape.chips_per_host} {TPU_RESOURCE} each"],
        ),
        Box("JAX processes", [f"{slices.count * slices.hosts}, one in each pod", f"{slices.devices} devices in all"]),
        Box("mesh", [str(spec.mesh), "replica crosses slices (DCN)", "fsdp stays in a slice (ICI)"]),
    ]
    return flow("From a stack file to the mesh", f"the stack {_STACK}: each box follows from the one before", boxes)


def queue() -> str:
    """How a job gets all its hosts or none."""
    boxes = [
        Box("submitted", ["The JobSet names the queue of its team. Kueue suspends it: no pod exists."]),
        Box("its turn", ["By priority, then by age. A smaller job may pass one that does not fit."]),
        Box(
            "quota", ["All chips of the job are reserved at once, in one flavor, or none. Others' idle chips are lent."]
        ),
        Box("hosts", ["Queued capacity: Kueue asks for the hosts and waits for them before a pod is made."]),
        Box("admitted", ["The JobSet is resumed. All pods of all slices are made together."]),
        Box(
            "pods run", ["Every slice on a node pool of its own. Until all are ready the clock of ready_minutes runs."]
        ),
    ]
    return flow("The queue", "a gang start: all hosts of all slices, or none", boxes)


def start() -> str:
    """The life of one attempt, to the crash and the next."""
    crash, preempted = ExitCode.CRASH, ExitCode.PREEMPTED
    boxes = [
        Box("start", ["Each host registers and waits for the others, and all join."]),
        Box("slice check", ["Devices are counted; each multiplies, then all sum. A bad host is marked."]),
        Box("restore", ["The newest checkpoint whose fingerprints hold; a damaged one is moved aside."]),
        Box("compile", ["The step, or from the cache if there is one. It runs during the restore."]),
        Box("steps", ["Batch by batch in one order; loss by step. Every so many, slices compare fingerprints."]),
        Box("save", ["Devices wait only for the copy; it is written while steps continue."]),
        Box("end: the last step", [f"A save, then exit code {ExitCode.DONE:d}: the job is done."]),
        Box("or: SIGTERM", [f"A save, then exit code {preempted:d}: a restart that does not count."], instead=True),
        Box(
            "or: a crash",
            [f"Exit code {crash:d} and others: all hosts end with the code of the first."],
            fails=True,
            instead=True,
        ),
    ]
    back = "all trainers start again; steps since the last save run again, bit for bit the same"
    return flow("The life of an attempt", "what an attempt does, and how it ends", boxes, closes=back)


PICTURES: Mapping[str, Callable[[], str]] = {
    "pictures/concepts-stack.svg": stack,
    "pictures/concepts-queue.svg": queue,
    "pictures/concepts-start.svg": start,
}
"""What draws each of them, by its path in `docs`."""

"""Rules for jobs that run a program of your own, on every host or through Pathways."""

from collections.abc import Collection, Iterator

from infra.stack.controllers import machine_size
from infra.stack.names import METRICS_PORT_NAME
from infra.stack.pods import most_of_host, requested_of_host
from infra.stack.programs import (
    PATHWAYS_PORTS,
    PATHWAYS_VARIABLES,
    TAKEN_PREFIXES,
    TAKEN_VARIABLES,
    TPU_METRICS_PORT,
    TPU_METRICS_PORT_NAME,
)
from infra.stack.settings.errors import FieldError
from infra.stack.settings.jobs import ContainerJob, Functions, JobSettings, Pathways
from infra.stack.settings.schema import DATASETS_FOLDER
from infra.stack.settings.sections import each
from infra.stack.settings.stack import Draft, Shapes, join_names
from infra.stack.tpu import SliceShape, all_shapes
from workloads.spec import METRICS_PORT

_FREE = ("HOME", "PATH", "TMPDIR")
"""Variables of the container that the stack file may change."""
_FREE_PREFIXES = ("JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Prefixes of variables that a program reads at start-up. Here the program is the user's."""
_TAKEN_FOLDERS = ("/tmp", "/dev/shm")
_TAKEN_TREES = (DATASETS_FOLDER, "/dev", "/proc", "/sys", "/var/run/secrets")


def check_container(path: str, job: ContainerJob, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of one job."""
    yield from each(
        _pathways(path, job),
        _with_head(path, job, draft, shapes),
        _direct_only(path, job),
        _variables(path, job, draft),
        _ports(path, job),
        _folders(path, job),
        _heartbeat(path, job),
        _room(path, job, draft, shapes),
    )


def _direct_only(path: str, job: ContainerJob) -> Iterator[FieldError]:
    for name in ("check_slices", "records"):
        if getattr(job, name) and job.backend == "pathways":
            expected = "false together with backend: pathways, whose servers hold the chips"
            yield FieldError(f"{path}.{name}", expected, "true", "remove it")


def _ports(path: str, job: ContainerJob) -> Iterator[FieldError]:
    for name, port in job.ports.items():
        if name == TPU_METRICS_PORT_NAME or port == TPU_METRICS_PORT:
            expected = f"a port other than {TPU_METRICS_PORT_NAME} {TPU_METRICS_PORT}, where libtpu answers GKE"
            yield FieldError(f"{path}.ports.{name}", expected, f"{name} {port}", "choose another")
        if job.records and (name == METRICS_PORT_NAME or port == METRICS_PORT):
            expected = f"a port other than {METRICS_PORT_NAME} {METRICS_PORT}, where records serves metrics"
            yield FieldError(f"{path}.ports.{name}", expected, f"{name} {port}", "choose another")


def _room(path: str, job: ContainerJob, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    if job.backend == "pathways":
        for name in sorted(job.resources.model_fields_set):
            expected, got = "nothing with backend: pathways, where the program runs on the head", job.resources
            fix = f"write {path}.pathways.head_{name}"
            yield FieldError(f"{path}.resources.{name}", expected, str(getattr(got, name)), fix)
        if job.pathways:
            yield from _in_memory(path, job, job.pathways.head_memory_gib)
    elif shape := shapes.get(job.slices.group):
        yield from each(_share(path, job, shape), _on_disk(path, job, draft))
        yield from _in_memory(path, job, requested_of_host(shape, job.resources)[1])


def _variables(path: str, job: ContainerJob, draft: Draft) -> Iterator[FieldError]:
    secrets = draft.secrets if job.secrets is None else job.secrets
    for name in job.env:
        free = name in _FREE or name.startswith(_FREE_PREFIXES)
        if not free and (name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES)):
            expected = "a variable that neither GKE nor the job itself sets"
            yield FieldError(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
        elif name in secrets:
            expected = "a variable that is set once"
            yield FieldError(f"{path}.env.{name}", expected, "also a secret of that name", "remove one of them")


def _folders(path: str, job: ContainerJob) -> Iterator[FieldError]:
    seen: dict[str, str] = {}
    for name, volume in job.volumes.items():
        place = f"{path}.volumes.{name}.path"
        trees = [tree for tree in _TAKEN_TREES if f"{volume.path}/".startswith(f"{tree}/")]
        if trees or volume.path in _TAKEN_FOLDERS:
            expected = f"a folder other than {', '.join(_TAKEN_FOLDERS)} and outside {', '.join(_TAKEN_TREES)}"
            fix = "choose another; /tmp can be written to without a volume"
            yield FieldError(place, expected, volume.path, fix)
        if other := seen.get(volume.path):
            expected = f"a folder that {other} does not use"
            yield FieldError(place, expected, volume.path, "choose another, or remove one")
        seen[volume.path] = name


def _heartbeat(path: str, job: ContainerJob) -> Iterator[FieldError]:
    if job.heartbeat is None:
        return
    port, file = job.heartbeat.port, job.heartbeat.file
    if port and port not in job.ports:
        expected = f"one of the job's ports, {join_names(job.ports)}"
        yield FieldError(f"{path}.heartbeat.port", expected, repr(port), f"rename it or add it to {path}.ports")
    folders = [*_TAKEN_FOLDERS, *(volume.path for volume in job.volumes.values())]
    if file and not any(file.startswith(f"{folder}/") for folder in folders):
        expected = f"a file below one of the folders that the program can write to: {', '.join(folders)}"
        yield FieldError(f"{path}.heartbeat.file", expected, file, "choose another, or add a volume")


def _share(path: str, job: ContainerJob, shape: SliceShape) -> Iterator[FieldError]:
    for name, most in zip(("vcpus", "memory_gib"), most_of_host(shape), strict=True):
        wanted = getattr(job.resources, name)
        if wanted is not None and wanted > most:
            expected = f"at most {most} of a {shape.machine_type}, since GKE's own pods need the rest"
            yield FieldError(f"{path}.resources.{name}", expected, str(wanted), "lower it")


def _on_disk(path: str, job: ContainerJob, draft: Draft) -> Iterator[FieldError]:
    """Yield volumes that do not fit on a boot disk, of which GKE reserves up to a half
    (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes)."""
    wanted = _sum(job, "disk")
    for name in (name for name in job.slices.groups if name in draft.slices):
        most = draft.slices[name].boot_disk_gb // 2
        if wanted > most:
            expected = f"at most {most} GiB on disk together, half of slices.{name}.boot_disk_gb"
            fix = "lower size_gib of some of them, or raise boot_disk_gb"
            yield FieldError(f"{path}.volumes", expected, f"{wanted} GiB", fix)


def _in_memory(path: str, job: ContainerJob, most: int) -> Iterator[FieldError]:
    wanted = _sum(job, "memory")
    if wanted > most:
        expected = f"at most {most} GiB in memory together, which is what the pod requests"
        yield FieldError(f"{path}.volumes", expected, f"{wanted} GiB", "lower size_gib of some of them")


def _sum(job: ContainerJob, medium: str) -> int:
    return sum(volume.size_gib for volume in job.volumes.values() if volume.medium == medium)


def _pathways(path: str, job: ContainerJob) -> Iterator[FieldError]:
    by_pathways = job.backend == "pathways"
    if by_pathways and not job.pathways:
        expected = "server_image and proxy_image by digest, both for the version of JAX in the program's image"
        yield FieldError(
            f"{path}.pathways", expected, "nothing", "add the section; docs/how-to/jobs.md says where they are"
        )
    if job.pathways and not by_pathways:
        fix = f"remove it, or write pathways as {path}.backend"
        yield FieldError(f"{path}.pathways", f"no such section with backend: {job.backend}", "the section", fix)


def _with_head(path: str, job: ContainerJob, draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    if not job.pathways or job.backend != "pathways":
        return
    yield from each(_runtime(path, job), _placement(path, draft, "backend: direct for the job"))
    if shape := shapes.get(job.slices.group):
        yield from _head(path, job, job.pathways, draft, shape)


def check_rights(path: str, job: JobSettings | Functions, draft: Draft, teams: Collection[str]) -> Iterator[FieldError]:
    """Yield rights that an admission policy refuses: if a job uses the host's network, the policy fixes the security
    context of all pods of its team. `teams` are those whose pods have the rights."""
    others = [other for other, found in draft.readable_jobs if found.team in teams and found.host_network]
    wanted = {"run_as_user": job.run_as_user is not None, "privileged": job.privileged}
    for name in (name for name, is_set in wanted.items() if is_set and others):
        expected = (
            f"nothing in a team with a job on the host's network ({others[0]}), where every pod is the trainer's user"
        )
        remove = f"remove it, or host_network of {others[0]}"
        fix = "give the job to another team" if isinstance(job, JobSettings) else remove
        yield FieldError(f"{path}.{name}", expected, str(getattr(job, name)), fix)


def check_functions(draft: Draft, shapes: Shapes) -> Iterator[FieldError]:
    """Yield the errors of function calls, whose Pathways runtime may run on every slice group."""
    yield from each(check_rights("functions", draft.functions, draft, draft.teams))
    path, runtime = "functions.pathways", draft.functions.pathways
    if runtime:
        yield from _placement(path, draft, f"remove {path}")
        if not any(shape.multi_host for shape in shapes.values()):
            return
        if draft.cluster and draft.cluster.existing:
            expected = "nothing on slices of several hosts, since the head needs the system nodes of a stack's cluster"
            yield FieldError(path, expected, "the section", "remove it, or use a cluster of the stack")
        yield from _head_node(path, "a function call", runtime, draft)


def _placement(path: str, draft: Draft, otherwise: str) -> Iterator[FieldError]:
    if draft.scheduling.placement == "topology-aware":
        yield FieldError(
            "scheduling.placement",
            f"exclusive-topology, since the head of {path} has no chips and Kueue would find no place for it",
            draft.scheduling.placement,
            f"write exclusive-topology, or {otherwise}",
        )


def _runtime(path: str, job: ContainerJob) -> Iterator[FieldError]:
    for name in sorted(job.env.keys() & set(PATHWAYS_VARIABLES)):
        expected = "a variable other than those with which JAX finds the proxy of Pathways"
        yield FieldError(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
    for name, port in job.ports.items():
        if port in PATHWAYS_PORTS:
            expected = (
                f"a port other than {', '.join(map(str, PATHWAYS_PORTS))}, on which the servers of Pathways listen"
            )
            yield FieldError(f"{path}.ports.{name}", expected, str(port), "choose another")
    if job.slices.min_count is not None:
        expected = "no fewer slices than count, because the resource manager waits for all of them"
        yield FieldError(f"{path}.slices.min_count", expected, str(job.slices.min_count), "remove it")


def _head(path: str, job: ContainerJob, runtime: Pathways, draft: Draft, shape: SliceShape) -> Iterator[FieldError]:
    if shape.pathways_instance is None:
        known = dict.fromkeys(other.machine_type for other in all_shapes() if other.pathways_instance)
        expected, fix = "slices of a machine type that Pathways knows", "choose another group, or write backend: direct"
        yield FieldError(f"{path}.slices.group", f"{expected}: {', '.join(known)}", shape.machine_type, fix)
    if not shape.multi_host:
        for name in sorted({"head_vcpus", "head_memory_gib"} & runtime.model_fields_set):
            expected = "nothing on slices of one host, which the head shares: it takes half of what is requested there"
            yield FieldError(f"{path}.pathways.{name}", expected, str(getattr(runtime, name)), "remove it")
    else:
        yield from _head_node(f"{path}.pathways", f"job {job.name}", runtime, draft)


def _head_node(path: str, what: str, runtime: Pathways, draft: Draft) -> Iterator[FieldError]:
    """Yield an error if no system node is large enough for the head. `path` is that of the runtime."""
    if draft.cluster is None or draft.cluster.existing:
        return
    machine = draft.cluster.system_machine_type
    size = machine_size(machine)
    if size and size.millicores <= runtime.head_vcpus * 1000:
        yield FieldError(
            "cluster.system_machine_type",
            f"a machine with more than the {runtime.head_vcpus} vCPUs that the head of {what} requests",
            machine,
            f"write a larger one, such as n2-standard-64, or lower {path}.head_vcpus",
        )

"""Rules of jobs that run containers, on every host or by Pathways."""

from collections.abc import Iterator

from infra import programs
from infra.controllers import machine_size
from infra.pods import most_of_host, requested_of_host
from infra.programs import TAKEN_PREFIXES, TAKEN_VARIABLES, TPU_METRICS_PORT, TPU_METRICS_PORT_NAME
from infra.settings.errors import Fault
from infra.settings.jobs import ContainerJob, Job, Pathways
from infra.settings.schema import DATASETS_FOLDER
from infra.settings.stack import Draft, listed
from infra.tpu import SliceShape, all_shapes

_FREE = ("HOME", "PATH", "TMPDIR")
"""The container's own, which its stack file may change."""


_FREE_PREFIXES = ("JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Of variables that programs read as they start: here the program is the user's."""


_TAKEN_FOLDERS = ("/tmp", "/dev/shm")


_TAKEN_TREES = (DATASETS_FOLDER, "/dev", "/proc", "/sys", "/var/run/secrets")


def check_container(path: str, job: ContainerJob, draft: Draft, shape: SliceShape | None) -> Iterator[Fault]:
    """Faults of one job, on slices of `shape` if that is known."""
    if job.check_slices and job.backend == "pathways":
        expected = "false next to backend: pathways, whose servers hold the chips"
        yield Fault(f"{path}.check_slices", expected, "true", "remove it")
    yield from _variables(path, job, draft)
    yield from _ports(path, job)
    yield from _rights(path, job, draft)
    yield from _folders(path, job)
    yield from _heartbeat(path, job)
    if job.backend == "pathways":
        yield from _of_pathways(path, job)
        if job.pathways:
            yield from _in_memory(path, job, job.pathways.head_memory_gib)
    elif shape:
        yield from _share(path, job, shape)
        yield from _on_disk(path, job, draft)
        yield from _in_memory(path, job, requested_of_host(shape, job.resources)[1])


def _variables(path: str, job: ContainerJob, draft: Draft) -> Iterator[Fault]:
    secrets = draft.secrets if job.secrets is None else job.secrets
    for name in job.env:
        free = name in _FREE or name.startswith(_FREE_PREFIXES)
        if not free and (name in TAKEN_VARIABLES or name.startswith(TAKEN_PREFIXES)):
            expected = "a variable that neither GKE nor the job itself sets"
            yield Fault(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
        elif name in secrets:
            expected = "a variable that is set once"
            yield Fault(f"{path}.env.{name}", expected, "a secret of that name too", "remove one of them")


def _ports(path: str, job: ContainerJob) -> Iterator[Fault]:
    for name, port in job.ports.items():
        if name == TPU_METRICS_PORT_NAME or port == TPU_METRICS_PORT:
            expected = f"a port other than {TPU_METRICS_PORT_NAME} {TPU_METRICS_PORT}, where libtpu answers GKE"
            yield Fault(f"{path}.ports.{name}", expected, f"{name} {port}", "choose another")


def _rights(path: str, job: ContainerJob, draft: Draft) -> Iterator[Fault]:
    """On the host's network, an admission policy holds all pods of a team to the trainer's security context."""
    others = [other for other, found in draft.readable_jobs if found.team == job.team and found.host_network]
    asked = {"run_as_user": job.run_as_user is not None, "privileged": job.privileged}
    for name in (name for name, said in asked.items() if said and others):
        expected = (
            f"nothing in a team with a job on the host's network ({others[0]}), where every pod is the trainer's user"
        )
        yield Fault(f"{path}.{name}", expected, str(getattr(job, name)), "give the job to another team")


def _folders(path: str, job: ContainerJob) -> Iterator[Fault]:
    seen: dict[str, str] = {}
    for name, volume in job.volumes.items():
        place = f"{path}.volumes.{name}.path"
        trees = [tree for tree in _TAKEN_TREES if f"{volume.path}/".startswith(f"{tree}/")]
        if trees or volume.path in _TAKEN_FOLDERS:
            expected = f"a folder other than {', '.join(_TAKEN_FOLDERS)} and outside {', '.join(_TAKEN_TREES)}"
            yield Fault(place, expected, volume.path, "choose another; /tmp can be written to without a volume")
        if other := seen.get(volume.path):
            yield Fault(place, f"a folder that {other} does not have", volume.path, "choose another, or remove one")
        seen[volume.path] = name


def _heartbeat(path: str, job: ContainerJob) -> Iterator[Fault]:
    if job.heartbeat is None:
        return
    port, file = job.heartbeat.port, job.heartbeat.file
    if port and port not in job.ports:
        expected = f"one of the job's ports, {listed(job.ports)}"
        yield Fault(f"{path}.heartbeat.port", expected, repr(port), f"rename it or add it to {path}.ports")
    folders = [*_TAKEN_FOLDERS, *(volume.path for volume in job.volumes.values())]
    if file and not any(file.startswith(f"{folder}/") for folder in folders):
        expected = f"a file below one of the folders that the program can write to: {', '.join(folders)}"
        yield Fault(f"{path}.heartbeat.file", expected, file, "choose another, or add a volume")


def _of_pathways(path: str, job: ContainerJob) -> Iterator[Fault]:
    for name in sorted(job.resources.model_fields_set):
        expected = "nothing next to backend: pathways, whose program runs on the head"
        got = str(getattr(job.resources, name))
        yield Fault(f"{path}.resources.{name}", expected, got, f"write {path}.pathways.head_{name}")


def _share(path: str, job: ContainerJob, shape: SliceShape) -> Iterator[Fault]:
    for name, most in zip(("vcpus", "memory_gib"), most_of_host(shape), strict=True):
        asked = getattr(job.resources, name)
        if asked is not None and asked > most:
            expected = f"at most {most} of a {shape.machine_type}, since GKE's own pods need the rest"
            yield Fault(f"{path}.resources.{name}", expected, str(asked), "lower it")


def _on_disk(path: str, job: ContainerJob, draft: Draft) -> Iterator[Fault]:
    """GKE keeps up to a half of a boot disk for itself
    (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes)."""
    asked = _sum(job, "disk")
    for name in (name for name in job.slices.groups if name in draft.slices):
        most = draft.slices[name].boot_disk_gb // 2
        if asked > most:
            expected = f"at most {most} GiB on disk together, half of slices.{name}.boot_disk_gb"
            yield Fault(
                f"{path}.volumes", expected, f"{asked} GiB", "lower size_gib of some of them, or raise boot_disk_gb"
            )


def _in_memory(path: str, job: ContainerJob, most: int) -> Iterator[Fault]:
    asked = _sum(job, "memory")
    if asked > most:
        expected = f"at most {most} GiB in memory together, which is what the pod requests"
        yield Fault(f"{path}.volumes", expected, f"{asked} GiB", "lower size_gib of some of them")


def _sum(job: ContainerJob, medium: str) -> int:
    return sum(volume.size_gib for volume in job.volumes.values() if volume.medium == medium)


def check_pathways(path: str, job: Job, draft: Draft, shape: SliceShape | None) -> Iterator[Fault]:
    """Faults of one job, on slices of `shape` where that is known."""
    by_pathways = job.backend == "pathways"
    if not isinstance(job, ContainerJob):
        if by_pathways:
            yield Fault(
                f"{path}.backend",
                "direct: the trainer is one program on every host, and by Pathways one program drives all hosts",
                job.backend,
                "remove it, or write a job of kind container with a program that calls pathwaysutils.initialize()",
            )
        return
    if by_pathways and not job.pathways:
        expected = "server_image and proxy_image by digest, both for the version of JAX in the program's image"
        yield Fault(f"{path}.pathways", expected, "nothing", "add the section; docs/jobs.md says where they lie")
    if job.pathways and not by_pathways:
        fix = f"remove it, or write pathways as {path}.backend"
        yield Fault(f"{path}.pathways", f"no such section beside backend: {job.backend}", "the section", fix)
    if job.pathways and by_pathways:
        yield from _runtime_settings(path, job)
        yield from _runtime_placement(path, draft)
        if shape:
            yield from _runtime_slices(path, job, job.pathways, draft, shape)


def _runtime_settings(path: str, job: ContainerJob) -> Iterator[Fault]:
    for name in sorted(job.env.keys() & set(programs.PATHWAYS_VARIABLES)):
        expected = "a variable that is not how JAX finds the proxy of Pathways"
        yield Fault(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
    for name, port in job.ports.items():
        if port in programs.PATHWAYS_PORTS:
            taken = ", ".join(map(str, programs.PATHWAYS_PORTS))
            expected = f"a port other than {taken}, where the servers of Pathways answer"
            yield Fault(f"{path}.ports.{name}", expected, str(port), "choose another")
    if job.slices.min_count is not None:
        yield Fault(
            f"{path}.slices.min_count",
            "no fewer slices than count, for the resource manager waits for all of them",
            str(job.slices.min_count),
            "remove it",
        )


def _runtime_placement(path: str, draft: Draft) -> Iterator[Fault]:
    if draft.scheduling.placement == "topology-aware":
        yield Fault(
            "scheduling.placement",
            f"exclusive-topology, since the head of {path} has no chips and Kueue would find no place for it",
            draft.scheduling.placement,
            "write exclusive-topology, or backend: direct for the job",
        )


def _runtime_slices(
    path: str, job: ContainerJob, runtime: Pathways, draft: Draft, shape: SliceShape
) -> Iterator[Fault]:
    if shape.pathways_instance is None:
        known = dict.fromkeys(other.machine_type for other in all_shapes() if other.pathways_instance)
        yield Fault(
            f"{path}.slices.group",
            f"slices of a machine type that Pathways knows: {', '.join(known)}",
            shape.machine_type,
            "choose another group, or write backend: direct",
        )
    if programs.colocated(shape):
        yield from _of_a_shared_host(path, runtime)
    elif draft.cluster:
        machine = draft.cluster.system_machine_type
        size = machine_size(machine)
        if size and size.millicores <= runtime.head_vcpus * 1000:
            yield Fault(
                "cluster.system_machine_type",
                f"a machine of more than the {runtime.head_vcpus} vCPUs that the head of job {job.name} asks for",
                machine,
                f"write a larger one, such as n2-standard-64, or lower {path}.pathways.head_vcpus",
            )


def _of_a_shared_host(path: str, runtime: Pathways) -> Iterator[Fault]:
    for name in sorted({"head_vcpus", "head_memory_gib"} & runtime.model_fields_set):
        yield Fault(
            f"{path}.pathways.{name}",
            "nothing, since on a slice of one host the head shares that host and takes half of what is asked of it",
            str(getattr(runtime, name)),
            "remove it",
        )

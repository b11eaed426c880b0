"""Rules of jobs that run containers: which variables, ports, folders and shares of a host are theirs."""

from collections.abc import Iterator

from infra.accelerators import SliceShape
from infra.faults import Fault
from infra.jobs import ContainerJob
from infra.pods import most_of_host, requested_of_host
from infra.programs import TAKEN_PREFIXES, TAKEN_VARIABLES, TPU_METRICS_PORT, TPU_METRICS_PORT_NAME
from infra.rules.draft import Draft, listed
from infra.stack_file import DATASETS_FOLDER

_FREE = ("HOME", "PATH", "TMPDIR")
"""The container's own, which its stack file may change."""
_FREE_PREFIXES = ("JAX_", "XLA_", "LIBTPU_", "LD_", "PYTHON")
"""Of variables that programs read as they start: here the program is the user's."""


_TAKEN_FOLDERS = ("/tmp", "/dev/shm")
_TAKEN_TREES = (DATASETS_FOLDER, "/dev", "/proc", "/sys", "/var/run/secrets")


def check(path: str, job: ContainerJob, draft: Draft, shape: SliceShape | None) -> Iterator[Fault]:
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

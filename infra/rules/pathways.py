"""Rules of jobs that run by Pathways: who may, on what, and with which names left to its servers."""

from collections.abc import Iterator

from infra import pathways
from infra.accelerators import SliceShape
from infra.controllers import machine_size
from infra.faults import Fault
from infra.jobs import ContainerJob, Job, Pathways
from infra.rules.draft import Draft


def check(path: str, job: Job, draft: Draft, shape: SliceShape | None) -> Iterator[Fault]:
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
        yield from _settings(path, job)
        yield from _placement(path, draft)
        if shape:
            yield from _slices(path, job, job.pathways, draft, shape)


def _settings(path: str, job: ContainerJob) -> Iterator[Fault]:
    for name in sorted(job.env.keys() & set(pathways.VARIABLES)):
        expected = "a variable that is not how JAX finds the proxy of Pathways"
        yield Fault(f"{path}.env.{name}", expected, repr(name), "remove it, or set it within the program")
    for name, port in job.ports.items():
        if port in pathways.PORTS:
            taken = ", ".join(map(str, pathways.PORTS))
            expected = f"a port other than {taken}, where the servers of Pathways answer"
            yield Fault(f"{path}.ports.{name}", expected, str(port), "choose another")
    if job.slices.min_count is not None:
        yield Fault(
            f"{path}.slices.min_count",
            "no fewer slices than count, for the resource manager waits for all of them",
            str(job.slices.min_count),
            "remove it",
        )


def _placement(path: str, draft: Draft) -> Iterator[Fault]:
    if draft.scheduling.placement == "topology-aware":
        yield Fault(
            "scheduling.placement",
            f"exclusive-topology, since the head of {path} has no chips and Kueue would find no place for it",
            draft.scheduling.placement,
            "write exclusive-topology, or backend: direct for the job",
        )


def _slices(path: str, job: ContainerJob, runtime: Pathways, draft: Draft, shape: SliceShape) -> Iterator[Fault]:
    if pathways.instance(shape) is None:
        yield Fault(
            f"{path}.slices.group",
            f"slices of a machine type that Pathways knows: {', '.join(pathways.machine_types())}",
            shape.machine_type,
            "choose another group, or write backend: direct",
        )
    if pathways.colocated(shape):
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

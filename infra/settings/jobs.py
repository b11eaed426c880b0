"""The kinds of jobs that a stack file may name: one class for each, and sweeps of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise, product
from math import prod
from typing import Annotated, Literal, Self, cast

from pydantic import Field, model_validator

from infra.settings.errors import Fault
from infra.settings.values import (
    FilePath,
    HttpPath,
    JobName,
    MountPath,
    PinnedImage,
    PortName,
    VariableName,
    VolumeName,
)
from workloads.spec import (
    CallSpec,
    CompilerSpec,
    DataSpec,
    MeshSpec,
    Number,
    OptimizerSetting,
    PositiveInt,
    Spec,
    WholeNumber,
)

Priority = Literal["low", "normal", "high"]


Backend = Literal["direct", "pathways"]


PodLevel = Literal["restricted", "baseline", "privileged"]
"""Pod Security levels, the strictest first (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""


HOURS_PER_YEAR = 8760


MOST_GRACE_SECONDS = 3600
"""The longest time that a pod may take to end: until then it holds chips that others have a quota of."""


class JobSlices(Spec):
    """What the job runs on."""

    group: str
    count: PositiveInt
    """Slices that the job takes of the group."""
    min_count: PositiveInt | None = None
    """Fewest slices that the same specification may be started on, by a JobSet with fewer replicas. Unset: all."""
    fallback: tuple[str, ...] = ()
    """Groups of equal slices to take instead, all slices from one, in this order, when those of
    `group` are not free."""

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups that the job may run on, the best first."""
        return (self.group, *self.fallback)


class Job(Spec):
    """A job of any kind. Any change replaces its JobSet: it starts over or resumes.

    Only `priority` changes in place, and only if the job has no `fallback` and no queued group.
    """

    name: JobName
    """In the short form `job` alone: in `jobs` it is the key."""
    team: str
    slices: JobSlices
    priority: Priority
    """A higher one may evict a lower one of the same team."""
    max_restarts: Annotated[WholeNumber, Field(ge=0)]
    """Restarts that a crash or hang may use up; preemptions and bad hosts are not counted."""
    grace_seconds: Annotated[WholeNumber, Field(ge=1, le=MOST_GRACE_SECONDS)] = 60
    """Time between the request to stop and the end, which must cover a save; a restart waits as long
    for a host that hangs. When Google takes back spot capacity, pods have 15 seconds whatever stands
    here (https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms)."""
    max_hours: Annotated[Number, Field(gt=0, le=HOURS_PER_YEAR)] | None = None
    """Hours that the job may hold chips, over all restarts; then Kueue stops it for good."""
    backend: Backend = "direct"
    """`direct`: the program runs on every host and drives its chips. `pathways`: it runs once, on the head, and
    drives the chips of all hosts by way of Pathways. Kind `container` alone, with the section `pathways`."""
    host_network: bool = False
    """Pods use the interfaces of their host: faster between slices, but they act as the service
    account of the nodes, which is then granted the buckets."""
    secrets: tuple[str, ...] | None = None
    """Names of the section `secrets` that its pods get. Unset: all."""
    sweep: Mapping[str, tuple[object, ...]] = {}
    """Lists of values by setting of the job, such as `training.seed: [0, 1]`: a run for each of their combinations, a
    job of its own with the places of its values behind the name. In `jobs` alone; see `docs/jobs.md`."""

    @property
    def pod_level(self) -> PodLevel:
        """Strictest level that admits its pods. No level allows the host's network and nothing else."""
        return "privileged" if self.host_network else "restricted"

    @property
    def sweep_name(self) -> str | None:
        """The key of the sweep that it is a run of; None: it is a job by itself."""
        return sweep_of(self.name, self.sweep)


class TrainingJob(CompilerSpec, Job):
    """Trains a model with the trainer of this repository."""

    kind: Literal["training"] = "training"
    preset: str
    """A file of `workloads/presets`, by name."""
    existing_run: Literal["resume", "anew"]
    """When the bucket holds a run of this job's name: go on with it, or begin a new one beside it."""
    model: Mapping[str, object] = {}
    """Replaces single values of the preset's `model` section, or all of them; see `docs/models.md`."""
    training: Mapping[str, object] = {}
    """Replaces single values of the preset's `training` section."""
    optimizer: Mapping[str, object] = {}
    """Replaces single values of the preset's `optimizer` section."""
    allow_changes: tuple[OptimizerSetting, ...] = ()
    """Settings of `optimizer` that a run in the bucket may continue with at a new value, such as
    `[optimizer.learning_rate]`; see `docs/jobs.md`. Unset: a changed value ends the job with exit code 20."""
    data: DataSpec | None = None
    """Unset: the preset's data, where it has some."""
    initial_weights: str | None = None
    """Folder of weights that a new run begins with, as every host sees it; see `docs/models.md`.
    Unset: weights drawn from the seed."""
    compile_cache: Literal["host", "bucket"] = "host"
    """Where compiled programs are kept. `host`: in the pod, until it ends. `bucket`: in the checkpoint
    bucket, where every later start finds them, and those that `multislice preflight` has left there."""
    mesh: MeshSpec | None = None
    """Unset: one replica per slice, parameters sharded over the whole slice."""


class Pathways(Spec):
    """The Pathways runtime of a job with `backend: pathways`. See `docs/jobs.md`."""

    server_image: PinnedImage
    """Of resource manager and workers, by digest: `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/server`. Google
    makes one for each version of JAX; it must be that of the program."""
    proxy_image: PinnedImage
    """Of the server that the program talks to, of the same version:
    `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/proxy_server`."""
    head_vcpus: Annotated[WholeNumber, Field(ge=6)] = 48
    """What the head asks of a system node: a sixth for the resource manager, a third for the proxy, the rest for the
    program. On a slice of one host the head shares that host instead, and this may not be set."""
    head_memory_gib: Annotated[WholeNumber, Field(ge=7)] = 217
    """The same of memory: a seventh, and three sevenths each for proxy and program."""


class HostShare(Spec):
    """CPU and memory that each pod requests of its host. It holds all chips of the host in any case."""

    vcpus: PositiveInt | None = None
    """Unset: three quarters of the machine's."""
    memory_gib: PositiveInt | None = None
    """Unset: three quarters of the machine's."""


class ScratchVolume(Spec):
    """A folder that the program may write to. It is empty at each start and ends with the pod."""

    path: MountPath
    """Where the program sees it."""
    size_gib: PositiveInt
    """A pod that writes more to the disk is evicted, which counts against `max_restarts`."""
    medium: Literal["disk", "memory"] = "disk"
    """`disk`: the boot disk of the node. `memory`: memory that the pod has requested."""


class Heartbeat(Spec):
    """A sign of life that a program gives on every host. When it stops, the container is ended and all slices restart,
    which counts against `max_restarts`."""

    port: PortName | None = None
    """Name in `ports`. The sign is that the program takes connections there, or answers requests for `path`."""
    path: HttpPath | None = None
    """Path of an HTTP request to `port`, to be answered with a status from 200 to 399."""
    file: FilePath | None = None
    """The sign is that the program writes or touches this file. The image needs `sh`, `date` and `stat`."""
    silence_seconds: Annotated[WholeNumber, Field(ge=30)]
    """Longest time without a sign. The end of the container comes up to 30 seconds later."""
    start_minutes: Annotated[Number, Field(gt=0, le=24 * 60)] = 30
    """Longest time from the start of the container to its first sign."""

    @model_validator(mode="after")
    def _one_sign(self) -> Self:
        if (self.port is None) == (self.file is None):
            raise ValueError("either port or file")
        if self.path and self.port is None:
            raise ValueError("no path without port")
        return self


class ContainerJob(Job):
    """Runs a program of your own: on every host of the slices, or by Pathways on the head. See `docs/jobs.md`."""

    kind: Literal["container"]
    image: PinnedImage
    """By digest."""
    command: tuple[str, ...] = ()
    """Unset: the entry point of the image."""
    args: tuple[str, ...] = ()
    """Words behind the command; in both `$(NAME)` stands for an environment variable of the container."""
    env: Mapping[VariableName, str] = {}
    """Environment variables in plain; what nobody may read belongs to `secrets`."""
    ports: Mapping[PortName, Annotated[WholeNumber, Field(ge=1, le=65535)]] = {}
    """Ports that the program listens on, wherever it runs."""
    run_as_user: Annotated[WholeNumber, Field(ge=0, le=65535)] | None = None
    """User and group of the processes, for images that run as one user only. Unset: 10001. 0 is root, which the policy
    refuses unless the stack has an exception; see `docs/jobs.md`."""
    privileged: bool = False
    """Gives the container all rights on its host. The policy refuses it unless the stack has an exception."""
    resources: HostShare = HostShare()
    volumes: Mapping[VolumeName, ScratchVolume] = {}
    """Folders for the program's files, by name. Apart from them only `/tmp` and `/dev/shm` can be written to."""
    check_slices: bool = False
    """Has an init container with the trainer's image check what all chips compute before the program starts. A host
    with a bad one is named in the log and in the job's folder, and the job restarts, which counts against
    `max_restarts`."""
    heartbeat: Heartbeat | None = None
    """Unset: a program that hangs holds its chips until it ends or `max_hours` are over."""
    pathways: Pathways | None = None
    """With `backend: pathways`, and with no other."""

    @property
    def pod_level(self) -> PodLevel:
        """Strictest level that admits its pods."""
        if self.privileged or self.host_network:
            return "privileged"
        return "baseline" if self.run_as_user == 0 else "restricted"

    @property
    def images(self) -> tuple[str, ...]:
        """All that its pods run."""
        return (self.image, *((self.pathways.server_image, self.pathways.proxy_image) if self.pathways else ()))


class FunctionJob(Job):
    """Carries out one call of a function: made by whoever calls it, and by no stack file. See `docs/functions.md`."""

    kind: Literal["function"] = "function"
    call: CallSpec


type AnyJob = TrainingJob | ContainerJob
"""Of any kind that a stack file may name."""


def group_order(wishes: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """One order of slice groups in which each wish, some of them from the best on, keeps its own.

    Raises:
        graphlib.CycleError: there is none.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for wish in wishes:
        sorter.add(wish[0])
        for better, worse in pairwise(wish):
            sorter.add(worse, better)
    return tuple(sorter.static_order())


type Section = Mapping[str, object]


SWEEP_KEY = "sweep"


MOST_SWEEP_RUNS = 64
"""Of one sweep. Every preview checks, prices and rehearses each run, some tenths of a second for each, and every `up`
looks at its JobSet: with more, both would be waited for."""


_FIXED = ("name", "kind", "team", SWEEP_KEY)
"""What is the same of all runs: they are one team's, and jobs of one kind."""


def sweep_runs(name: str, written: Section) -> Iterator[tuple[str, Section]]:
    """The name of each run of a sweep that has no `faults`, and its section of the stack file."""
    axes = sorted(cast(Mapping[str, Sequence[object]], written[SWEEP_KEY]).items())
    for chosen in product(*(list(enumerate(values)) for _, values in axes)):
        section = written
        for (path, _), (_, value) in zip(axes, chosen, strict=True):
            section = _with_value(section, path.split("."), value)
        yield "-".join([name, *(str(place) for place, _ in chosen)]), section


def sweep_faults(path: str, written: Section) -> Iterator[Fault]:
    """What is wrong with the section `sweep` of the job at `path`."""
    place, sweep = f"{path}.{SWEEP_KEY}", written[SWEEP_KEY]
    if not isinstance(sweep, Mapping) or not sweep:
        yield Fault(place, "lists of values by setting, such as training.seed: [0, 1]", repr(sweep), "write one")
        return
    sizes: list[int] = []
    for setting, values in cast(Mapping[str, object], sweep).items():
        if setting.partition(".")[0] in _FIXED:
            fixed = ", ".join(_FIXED)
            yield Fault(f"{place}.{setting}", f"a setting of the job but {fixed}", repr(setting), "remove it")
        elif not isinstance(values, list) or not values:
            yield Fault(f"{place}.{setting}", "a list of values", repr(values), "write one, or remove the setting")
        elif repeated := _repeated(cast(list[object], values)):
            yield Fault(f"{place}.{setting}", "each value once", f"{repeated[0]!r} again", "remove it there")
        else:
            sizes.append(len(cast(list[object], values)))
    if prod(sizes) > MOST_SWEEP_RUNS:
        told = " x ".join(map(str, sizes))
        yield Fault(
            place, f"at most {MOST_SWEEP_RUNS} runs", f"{prod(sizes)} ({told})", "write fewer values, or two sweeps"
        )


def sweep_of(name: str, sweep: Mapping[str, object]) -> str | None:
    """The sweep that the run of this name is of; None: the job is no run of one."""
    return name.rsplit("-", len(sweep))[0] if sweep else None


def _repeated(values: list[object]) -> list[object]:
    return [value for place, value in enumerate(values) if value in values[:place]]


def _with_value(section: Section, path: Sequence[str], value: object) -> Section:
    """The section with that value in it."""
    first, *rest = path
    if not rest:
        return {**section, first: value}
    inner = section.get(first)
    return {**section, first: _with_value(cast(Section, inner) if isinstance(inner, Mapping) else {}, rest, value)}

"""The kinds of jobs that a stack file may have: one class for each, and sweeps, which are written once and run
often."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise, product
from math import prod
from typing import Annotated, Literal, Self, cast

from pydantic import Field, model_validator

from infra.settings.errors import FieldError
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
    TrackersSpec,
    WholeNumber,
)

Priority = Literal["low", "normal", "high"]
Backend = Literal["direct", "pathways"]
PodLevel = Literal["restricted", "baseline", "privileged"]
"""Pod Security levels, the strictest first (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""
type Section = Mapping[str, object]
"""A section as it is in the file, whatever is wrong with it."""

HOURS_PER_YEAR = 8760
MOST_GRACE_SECONDS = 3600
"""Longest time that a pod may take to end. Until then it holds chips that are part of other jobs' quota."""
SWEEP_KEY = "sweep"
MOST_SWEEP_RUNS = 64
"""Every preview checks, prices and simulates each run, which takes some tenths of a second, and every `up` looks at its
JobSet. With more runs both would be slow."""
_FIXED_IN_SWEEPS = ("name", "kind", "team", SWEEP_KEY)
"""What is the same for all runs: a sweep belongs to one team and has jobs of one kind."""


class JobSlices(Spec):
    """What the job runs on."""

    group: str
    count: PositiveInt
    """Number of slices that the job takes of the group."""
    min_count: PositiveInt | None = None
    """Fewest slices that the same specification may be started on, by a JobSet with fewer replicas. Default:
    `count`."""
    fallback: tuple[str, ...] = ()
    """Groups of equal slices, in order, to use if those of `group` are not free. All slices come from one group."""

    @property
    def groups(self) -> tuple[str, ...]:
        """All groups that the job may run on, the preferred one first."""
        return (self.group, *self.fallback)


class Job(Spec):
    """A job of any kind. Any change replaces its JobSet: it starts over or resumes.

    `paused` changes in place. So does `priority`, unless the job has a `fallback` or a queued group.
    """

    name: JobName
    """Name of the job. Only in the short form `job`: in `jobs` it is the key."""
    team: str
    slices: JobSlices
    priority: Priority
    """Priority within the team. A job may evict one of the same team with a lower priority."""
    paused: bool = False
    """Whether the job is kept out of its queue. A running job gets SIGTERM, saves, and frees its chips. When this
    becomes false again, it waits for chips like any other and continues from its last checkpoint."""
    max_restarts: Annotated[WholeNumber, Field(ge=0)]
    """Number of restarts after a crash or hang. Preemptions and bad hosts do not count."""
    grace_seconds: Annotated[WholeNumber, Field(ge=1, le=MOST_GRACE_SECONDS)] = 60
    """Seconds between the request to stop and the end, which must be enough for a save. A restart waits as long for a
    host that hangs. When Google takes back spot capacity, pods have 15 seconds in any case
    (https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms)."""
    max_hours: Annotated[Number, Field(gt=0, le=HOURS_PER_YEAR)] | None = None
    """Hours that the job may hold chips, over all restarts, after which Kueue stops it for good. Default: no limit."""
    backend: Backend = "direct"
    """How the program reaches the chips. `direct`: it runs on every host and uses the host's chips. `pathways`: it runs
    once, on the head, and uses the chips of all hosts through Pathways, which needs kind `container` and the section
    `pathways`."""
    host_network: bool = False
    """Whether pods use the network interfaces of their host. Traffic between slices is faster, but the pods act as the
    service account of the nodes, which then gets access to the buckets."""
    secrets: tuple[str, ...] | None = None
    """Names of the section `secrets` that its pods get. Default: all."""
    sweep: Mapping[str, tuple[object, ...]] = {}
    """Lists of values by setting of the job, such as `training.seed: [0, 1]`. Each combination becomes a job of its
    own, with the positions of its values after the name. Only in `jobs`; see `docs/jobs.md`."""

    @property
    def pod_level(self) -> PodLevel:
        """Strictest level that admits its pods. No level allows the host's network and nothing else."""
        return "privileged" if self.host_network else "restricted"

    @property
    def queue(self) -> str:
        """Name of the job's own LocalQueue: the team's name, a dot, the job's name."""
        return f"{self.team}.{self.name}"

    @property
    def sweep_name(self) -> str | None:
        """Key of the sweep that the job is a run of; `None` if it is not one."""
        return sweep_of(self.name, self.sweep)


class TrainingJob(CompilerSpec, Job):
    """Trains a model with the trainer of this repository."""

    kind: Literal["training"] = "training"
    preset: str
    """Name of a file of `workloads/presets`."""
    existing_run: Literal["resume", "anew"]
    """What to do if the bucket holds a run of this job's name: continue it, or begin a new one next to it."""
    model: Mapping[str, object] = {}
    """Values in place of single ones of the preset's `model` section, or of all of them; see `docs/models.md`."""
    training: Mapping[str, object] = {}
    """Values in place of single ones of the preset's `training` section."""
    optimizer: Mapping[str, object] = {}
    """Values in place of single ones of the preset's `optimizer` section."""
    allow_changes: tuple[OptimizerSetting, ...] = ()
    """Settings of `optimizer` with which a run in the bucket may continue at a new value, such as
    `[optimizer.learning_rate]`; see `docs/jobs.md`. Default: a changed value ends the job with exit code 20."""
    data: DataSpec | None = None
    """Training data. Default: the preset's, if it has some."""
    initial_weights: str | None = None
    """Folder of weights that a new run begins with, as every host sees it; see `docs/models.md`. Default: weights drawn
    from the seed."""
    trackers: TrackersSpec = TrackersSpec()
    """Where the curves of the run are shown; see `docs/metrics.md`. Default: only in its report."""
    compile_cache: Literal["host", "bucket"] = "host"
    """Where compiled programs are kept. `host`: in the pod, until it ends. `bucket`: in the checkpoint bucket, where
    every later start finds them, together with those that `multislice preflight` stored there."""
    mesh: MeshSpec | None = None
    """Mesh of devices. Default: one replica per slice, with parameters sharded over the whole slice."""


class Pathways(Spec):
    """The Pathways runtime of a job with `backend: pathways`. See `docs/jobs.md`."""

    server_image: PinnedImage
    """Image of resource manager and workers, by digest: `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/server`. Google
    publishes one for each version of JAX; it must be the version of the program."""
    proxy_image: PinnedImage
    """Image of the server that the program connects to, of the same version:
    `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/proxy_server`."""
    head_vcpus: Annotated[WholeNumber, Field(ge=6)] = 48
    """vCPUs that the head requests of a system node: a sixth for the resource manager, a third for the proxy, the rest
    for the program. On a slice of one host the head shares that host instead, and this must not be set."""
    head_memory_gib: Annotated[WholeNumber, Field(ge=7)] = 217
    """GiB of memory that the head requests: a seventh for the resource manager, three sevenths each for proxy and
    program."""


class HostShare(Spec):
    """CPU and memory that each pod requests of its host. It gets all chips of the host in any case."""

    vcpus: PositiveInt | None = None
    """vCPUs. Default: three quarters of the machine's."""
    memory_gib: PositiveInt | None = None
    """GiB of memory. Default: three quarters of the machine's."""


class ScratchVolume(Spec):
    """A folder that the program may write to. It is empty at each start and is deleted with the pod."""

    path: MountPath
    """Path at which the program sees it."""
    size_gib: PositiveInt
    """Size in GiB. A pod that writes more to the disk is evicted, which counts against `max_restarts`."""
    medium: Literal["disk", "memory"] = "disk"
    """Where it is stored. `disk`: the boot disk of the node. `memory`: memory that the pod has requested."""


class Heartbeat(Spec):
    """A sign of life that a program gives on every host. When it stops, the container is ended and all slices restart,
    which counts against `max_restarts`."""

    port: PortName | None = None
    """Name of one of `ports`. The program accepts connections there, or answers requests for `path`."""
    path: HttpPath | None = None
    """Path of an HTTP request to `port` that the program answers with a status from 200 to 399."""
    file: FilePath | None = None
    """File that the program writes or touches. The image needs `sh`, `date` and `stat`."""
    silence_seconds: Annotated[WholeNumber, Field(ge=30)]
    """Most seconds without a sign. The container ends up to 30 seconds later."""
    start_minutes: Annotated[Number, Field(gt=0, le=24 * 60)] = 30
    """Most minutes from the start of the container to its first sign."""

    @model_validator(mode="after")
    def _one_sign(self) -> Self:
        if (self.port is None) == (self.file is None):
            raise ValueError("either port or file")
        if self.path and self.port is None:
            raise ValueError("no path without port")
        return self


class ContainerJob(Job):
    """Runs a program of your own: on every host of the slices, or through Pathways on the head. See `docs/jobs.md`."""

    kind: Literal["container"]
    image: PinnedImage
    """Image by digest."""
    command: tuple[str, ...] = ()
    """Command of the container. Default: the entry point of the image."""
    args: tuple[str, ...] = ()
    """Arguments after the command. In both, `$(NAME)` stands for an environment variable of the container."""
    env: Mapping[VariableName, str] = {}
    """Environment variables in plain text. Confidential values belong in `secrets`."""
    ports: Mapping[PortName, Annotated[WholeNumber, Field(ge=1, le=65535)]] = {}
    """Ports that the program listens on, wherever it runs."""
    run_as_user: Annotated[WholeNumber, Field(ge=0, le=65535)] | None = None
    """User and group of the processes, for images that run only as one user. Default: 10001. 0 is root, which the
    policy refuses unless the stack has an exception; see `docs/jobs.md`."""
    privileged: bool = False
    """Whether the container has all rights on its host. The policy refuses it unless the stack has an exception."""
    resources: HostShare = HostShare()
    volumes: Mapping[VolumeName, ScratchVolume] = {}
    """Folders for the program's files, by name. Otherwise only `/tmp` and `/dev/shm` can be written to."""
    check_slices: bool = False
    """Whether an init container with the trainer's image checks the results of all chips before the program starts. A
    host with a bad chip is named in the log and in the job's folder, and the job restarts, which counts against
    `max_restarts`."""
    heartbeat: Heartbeat | None = None
    """Sign of life of the program. Default: a program that hangs holds its chips until it ends or reaches
    `max_hours`."""
    pathways: Pathways | None = None
    """Pathways runtime. Required with `backend: pathways`, and not allowed otherwise."""

    @property
    def pod_level(self) -> PodLevel:
        if self.privileged or self.host_network:
            return "privileged"
        return "baseline" if self.run_as_user == 0 else "restricted"

    @property
    def images(self) -> tuple[str, ...]:
        """All images that its pods run."""
        return (self.image, *((self.pathways.server_image, self.pathways.proxy_image) if self.pathways else ()))


class FunctionJob(Job):
    """Executes one call of a function. The caller makes it; no stack file has one. See `docs/functions.md`."""

    kind: Literal["function"] = "function"
    call: CallSpec


type AnyJob = TrainingJob | ContainerJob
"""A job of any kind that a stack file may have."""


def group_order(wishes: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return one order of slice groups that keeps the order of each wish.

    Raises:
        graphlib.CycleError: there is no such order.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for wish in wishes:
        sorter.add(wish[0])
        for better, worse in pairwise(wish):
            sorter.add(worse, better)
    return tuple(sorter.static_order())


def sweep_runs(name: str, written: Section) -> Iterator[tuple[str, Section]]:
    """Yield the name of each run of a sweep without `sweep_errors`, and its section of the stack file.

    A run is named by the positions of its values in their lists, so that a value added at the end of a list does not
    change the name of any other run.
    """
    axes = sorted(cast(Mapping[str, Sequence[object]], written[SWEEP_KEY]).items())
    for chosen in product(*(list(enumerate(values)) for _, values in axes)):
        section = written
        for (path, _), (_, value) in zip(axes, chosen, strict=True):
            section = _with_value(section, path.split("."), value)
        yield "-".join([name, *(str(place) for place, _ in chosen)]), section


def sweep_errors(path: str, written: Section) -> Iterator[FieldError]:
    """Yield the errors of the section `sweep` of the job at `path`."""
    place, sweep = f"{path}.{SWEEP_KEY}", written[SWEEP_KEY]
    if not isinstance(sweep, Mapping) or not sweep:
        yield FieldError(place, "lists of values by setting, such as training.seed: [0, 1]", repr(sweep), "write one")
        return
    sizes: list[int] = []
    for setting, values in cast(Mapping[str, object], sweep).items():
        if setting.partition(".")[0] in _FIXED_IN_SWEEPS:
            expected = f"a setting of the job other than {', '.join(_FIXED_IN_SWEEPS)}"
            yield FieldError(f"{place}.{setting}", expected, repr(setting), "remove it")
        elif not isinstance(values, list) or not values:
            yield FieldError(f"{place}.{setting}", "a list of values", repr(values), "write one, or remove the setting")
        elif repeated := _repeated(cast(list[object], values)):
            yield FieldError(f"{place}.{setting}", "each value once", f"{repeated[0]!r} twice", "remove one of them")
        else:
            sizes.append(len(cast(list[object], values)))
    if prod(sizes) > MOST_SWEEP_RUNS:
        got = f"{prod(sizes)} ({' x '.join(map(str, sizes))})"
        yield FieldError(place, f"at most {MOST_SWEEP_RUNS} runs", got, "write fewer values, or two sweeps")


def sweep_of(name: str, sweep: Mapping[str, object]) -> str | None:
    """Return the sweep that the run of this name belongs to; `None` if `sweep` is empty."""
    return name.rsplit("-", len(sweep))[0] if sweep else None


def _repeated(values: list[object]) -> list[object]:
    return [value for place, value in enumerate(values) if value in values[:place]]


def _with_value(section: Section, path: Sequence[str], value: object) -> Section:
    """Return the section with the value at `path`."""
    first, *rest = path
    if not rest:
        return {**section, first: value}
    inner = section.get(first)
    return {**section, first: _with_value(cast(Section, inner) if isinstance(inner, Mapping) else {}, rest, value)}

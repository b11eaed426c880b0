"""The kinds of jobs in a stack file, one class for each kind, and sweeps, which are written once and run several
times."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import TopologicalSorter
from itertools import pairwise, product
from math import prod
from typing import Annotated, ClassVar, Literal, Self, cast

from pydantic import Field, model_validator

from infra.stack.names import PROGRAM, TRAINER
from infra.stack.settings.errors import FieldError
from infra.stack.settings.values import (
    MOST_INT32,
    FilePath,
    HttpPath,
    JobName,
    MountPath,
    PinnedImage,
    PortName,
    VariableName,
    VolumeName,
)
from multislice_run.exit_codes import UNCOUNTED_CODES
from workloads.spec import (
    Backend,
    CallSpec,
    CompilerSpec,
    DataSpec,
    ExistingRun,
    ExitCode,
    Flag,
    MeshSpec,
    Number,
    OptimizerSetting,
    PositiveInt,
    Spec,
    TrackersSpec,
    WholeNumber,
)

Priority = Literal["low", "normal", "high"]
PodLevel = Literal["restricted", "baseline", "privileged"]
"""Pod Security levels, the strictest first (https://kubernetes.io/docs/concepts/security/pod-security-standards/)."""
type UserId = Annotated[WholeNumber, Field(ge=0, le=65535)]
type Section = Mapping[str, object]
"""A section as it is in the file, valid or not."""

HOURS_PER_YEAR = 8760
MAX_GRACE_SECONDS = 3600
"""Maximum seconds that a pod may take to end. Until then it holds chips that count against other jobs' quota."""
SWEEP_KEY = "sweep"
MAX_SWEEP_RUNS = 64
"""Maximum number of runs. Every preview checks, prices and simulates each run, which takes some tenths of a second, and
every `up` reads its JobSet. With more runs both would be slow."""
_FIXED_IN_SWEEPS = ("name", "kind", "team", SWEEP_KEY)
"""Keys that are the same for all runs: a sweep belongs to one team and has jobs of one kind."""


def level_of_rights(run_as_user: int | None, privileged: bool) -> PodLevel:
    """Return the strictest level that admits pods with these rights."""
    if privileged:
        return "privileged"
    return "baseline" if run_as_user == 0 else "restricted"


class JobSlices(Spec):
    """Slices of the job."""

    group: str
    count: PositiveInt
    """Number of slices of the group that the job uses."""
    min_count: PositiveInt | None = None
    """Minimum number of slices that train on if the others are missing, with the same global batch. Only for training
    jobs. Default: `count`."""
    wait_seconds: Annotated[Number, Field(ge=0, le=MOST_INT32)] = 60
    """Time in seconds that they wait for the others at the start of an attempt."""
    fallback: tuple[str, ...] = ()
    """Groups of equal slices, in order, to use if those of `group` are busy. All slices come from the same group."""

    @property
    def groups(self) -> tuple[str, ...]:
        """Return all groups that the job may run on, the preferred group first."""
        return (self.group, *self.fallback)


class JobSettings(Spec):
    """A job of any kind. Any change replaces its JobSet, so the job starts over or resumes.

    A change of `paused` is made in place. So is a change of `priority`, unless the job has a `fallback` or a queued
    group.
    """

    name: JobName
    """Name of the job. It is set only in the short form `job`, where the default is the name of the preset. In `jobs`
    it is the key."""
    team: str
    """Team of the job. May be left out if the stack has only one team."""
    slices: JobSlices
    priority: Priority = "normal"
    """Priority within the team. A job may evict a job of the same team that has a lower priority."""
    paused: Flag = False
    """Whether the job is kept out of its queue. A running job receives SIGTERM, saves, and frees its chips. When this
    is false again, the job waits for chips like any other job and continues from its last checkpoint."""
    max_restarts: Annotated[WholeNumber, Field(ge=0, le=MOST_INT32)] = 3
    """Maximum number of restarts after a crash or hang. Preemptions and bad hosts do not count."""
    grace_seconds: Annotated[WholeNumber, Field(ge=1, le=MAX_GRACE_SECONDS)] = 60
    """Seconds from SIGTERM to SIGKILL, which must be enough to save a checkpoint. A restart waits equally long for a
    hanging host. When Google reclaims spot capacity, pods have 15 seconds in any case
    (https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms)."""
    max_hours: Annotated[Number, Field(gt=0, le=HOURS_PER_YEAR)] | None = None
    """Hours that the job may hold chips, over all restarts. Then Kueue stops it for good. Default: no limit."""
    backend: Backend = "direct"
    """How the program uses the chips. `direct`: it runs on every host and uses the host's chips. `pathways`: it runs
    once, on the head, and uses the chips of all hosts through Pathways. That needs kind `container` and the section
    `pathways`."""
    host_network: Flag = False
    """Whether pods use the network interfaces of their host. Traffic between slices is then faster, but the pods act as
    the service account of the nodes, which then gets access to the buckets."""
    run_as_user: UserId | None = None
    """User and group ID of the processes, for images or devices that need another one. 0 is root, which the policy
    refuses unless the stack has an exception; see `docs/how-to/jobs.md`. Default: 10001."""
    privileged: Flag = False
    """Whether the container has all rights on its host. The policy refuses it unless the stack has an exception."""
    secrets: tuple[str, ...] | None = None
    """Names in the section `secrets` that its pods get. Default: all."""
    sweep: Mapping[str, tuple[object, ...]] = {}
    """Lists of values, by setting of the job, such as `training.seed: [0, 1]`. Each combination becomes a separate job,
    whose name ends with the positions of its values. Only in `jobs`; see `docs/how-to/jobs.md`."""

    @property
    def pod_level(self) -> PodLevel:
        """Return the strictest level that admits its pods. No level allows only the host's network."""
        return "privileged" if self.host_network else level_of_rights(self.run_as_user, self.privileged)

    @property
    def queue(self) -> str:
        """Return the name of the job's own LocalQueue: the team's name, a dot, the job's name."""
        return f"{self.team}.{self.name}"

    @property
    def sweep_name(self) -> str | None:
        """Return the key of the sweep that the job is a run of; `None` if it is not part of a sweep."""
        return sweep_of(self.name, self.sweep)


class HostShare(Spec):
    """CPU and memory that each pod requests of its host. A pod gets all chips of the host in any case."""

    vcpus: PositiveInt | None = None
    """Number of vCPUs. Default: three quarters of the machine's vCPUs."""
    memory_gib: PositiveInt | None = None
    """GiB of memory. Default: three quarters of the machine's memory."""


class ScratchVolume(Spec):
    """A folder that the program may write to. It is empty at each start and is deleted with the pod."""

    path: MountPath
    """Path at which the program sees the folder."""
    size_gib: PositiveInt
    """Size in GiB. A pod that writes more to the disk is evicted, which counts against `max_restarts`."""
    medium: Literal["disk", "memory"] = "disk"
    """Where the folder is stored. `disk`: on the boot disk of the node. `memory`: in memory that the pod requests."""


class _JobInTrainerImage(JobSettings):
    """A job whose program is in the trainer's image. It answers what a `ContainerJob` may choose."""

    container: ClassVar[str] = TRAINER
    uncounted_codes: ClassVar[tuple[ExitCode, ...]] = UNCOUNTED_CODES
    image: ClassVar[None] = None
    images: ClassVar[tuple[str, ...]] = ()
    resources: ClassVar[HostShare] = HostShare()
    volumes: ClassVar[Mapping[str, ScratchVolume]] = {}
    check_slices: ClassVar[bool] = False
    records: ClassVar[bool] = True


class TrainingJob(CompilerSpec, _JobInTrainerImage):
    """Trains a model with the trainer of this repository."""

    kind: Literal["training"] = "training"
    preset: str
    """Name of a file of `workloads/presets`."""
    pathways: ClassVar[None] = None
    """The trainer is one program on every host, whereas with Pathways one program drives all hosts."""
    existing_run: ExistingRun = "resume"
    """What to do if the bucket contains a run with this job's name: resume it, or start a new run next to it."""
    model: Mapping[str, object] = {}
    """Values that replace single values of the preset's `model` section, or all of them; see
    `docs/how-to/models.md`."""
    training: Mapping[str, object] = {}
    """Values that replace single values of the preset's `training` section."""
    optimizer: Mapping[str, object] = {}
    """Values that replace single values of the preset's `optimizer` section."""
    allow_changes: tuple[OptimizerSetting, ...] = ()
    """Settings of `optimizer` that may change when a run in the bucket continues, such as `[optimizer.learning_rate]`;
    see `docs/how-to/jobs.md`. Default: a changed value ends the job with exit code 20."""
    data: DataSpec | None = None
    """Training data. Default: the preset's data, if it has any."""
    initial_weights: str | None = None
    """Folder of the weights with which a new run starts, as every host sees it; see `docs/how-to/models.md`. Default:
    weights drawn from the seed."""
    trackers: TrackersSpec = TrackersSpec()
    """Where the curves of the run are shown; see `docs/how-to/metrics.md`. Default: only in its report."""
    compile_cache: Literal["host", "bucket"] = "host"
    """Where compiled programs are kept. `host`: in the pod, until it ends. `bucket`: in the checkpoint bucket, where
    every later start finds them, including those that `multislice preflight` stored there."""
    mesh: MeshSpec | None = None
    """Mesh of devices. Default: one replica per slice, with parameters sharded over the whole slice."""


class Pathways(Spec):
    """The Pathways runtime of jobs or function calls with the backend `pathways`. See `docs/how-to/jobs.md`."""

    server_image: PinnedImage
    """Image of resource manager and workers, by digest: `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/server`. Google
    publishes one image for each version of JAX. It must match the program's version."""
    proxy_image: PinnedImage
    """Image of the server that the program connects to, of the same version:
    `us-docker.pkg.dev/cloud-tpu-v2-images/pathways/proxy_server`."""
    head_vcpus: Annotated[WholeNumber, Field(ge=6)] = 48
    """vCPUs that the head requests of a system node: a sixth for the resource manager, a third for the proxy, the rest
    for the program. On a slice of one host the head shares that host, and this must not be set."""
    head_memory_gib: Annotated[WholeNumber, Field(ge=7)] = 217
    """GiB of memory that the head requests: a seventh for the resource manager, three sevenths each for proxy and
    program. On a slice of one host this must not be set."""


class Heartbeat(Spec):
    """Sign of life that a program gives on every host. When it stops, kubelet ends the container and all slices
    restart, which counts against `max_restarts`."""

    port: PortName | None = None
    """Name of one of `ports`. The program accepts connections there, or answers requests for `path`."""
    path: HttpPath | None = None
    """Path of an HTTP request to `port` that the program answers with a status from 200 to 399."""
    file: FilePath | None = None
    """File that the program writes or touches. The image needs `sh`, `date` and `stat`."""
    silence_seconds: Annotated[WholeNumber, Field(ge=30)]
    """Maximum number of seconds without a sign. The container ends up to 30 seconds later."""
    start_minutes: Annotated[Number, Field(gt=0, le=24 * 60)] = 30
    """Maximum number of minutes from the start of the container to its first sign."""

    @model_validator(mode="after")
    def _one_sign(self) -> Self:
        if (self.port is None) == (self.file is None):
            raise ValueError("either port or file")
        if self.path and self.port is None:
            raise ValueError("no path without port")
        return self


class ContainerJob(JobSettings):
    """Runs a program of your own: on every host of the slices, or through Pathways on the head. See
    `docs/how-to/jobs.md`."""

    kind: Literal["container"]
    image: PinnedImage
    """Image by digest."""
    command: tuple[str, ...] = ()
    """Command of the container. Default: the entry point of the image."""
    args: tuple[str, ...] = ()
    """Arguments after the command. In command and arguments, `$(NAME)` is replaced by that variable of the
    container."""
    env: Mapping[VariableName, str] = {}
    """Environment variables in plain text. Confidential values belong in `secrets`."""
    ports: Mapping[PortName, Annotated[WholeNumber, Field(ge=1, le=65535)]] = {}
    """Ports that the program listens on, on every host or on the head."""
    resources: HostShare = HostShare()
    volumes: Mapping[VolumeName, ScratchVolume] = {}
    """Folders for the program's files, by name. Without them only `/tmp` and `/dev/shm` are writable."""
    check_slices: Flag = False
    """Whether an init container with the trainer's image checks the results of all chips before the program starts. A
    host with a bad chip is named in the log and in the job's folder. The job then restarts, which counts against
    `max_restarts`."""
    records: Flag = False
    """Whether the program keeps records with the package `multislice_run`. Restarts, alerts, `status`, `explain` and
    `report` then work as for the trainer; see `docs/how-to/your-trainer.md`."""
    heartbeat: Heartbeat | None = None
    """Sign of life of the program. Default: none, so a hanging program holds its chips until it ends or reaches
    `max_hours`."""
    pathways: Pathways | None = None
    """Pathways runtime. Required with `backend: pathways`, and not allowed otherwise."""
    container: ClassVar[str] = PROGRAM
    """Name of the container with the program."""
    uncounted_codes: ClassVar[tuple[ExitCode, ...]] = (ExitCode.PREEMPTED,)
    """Exit codes with which a program with records restarts without a count. Only the trainer marks the nodes of a bad
    host. Without the mark, the job could restart on them without end."""

    @property
    def images(self) -> tuple[str, ...]:
        return (self.image, *((self.pathways.server_image, self.pathways.proxy_image) if self.pathways else ()))


class FunctionJob(_JobInTrainerImage):
    """Executes one function call. The caller creates it; it is not part of a stack file. See
    `docs/how-to/functions.md`."""

    kind: Literal["function"] = "function"
    call: CallSpec
    pathways: Pathways | None = None
    """Pathways runtime of a call with the backend `pathways`."""


class Functions(Spec):
    """What the stack offers to calls of functions. See `docs/how-to/functions.md`."""

    pathways: Pathways | None = None
    """Pathways runtime of calls with `backend="pathways"`, for the version of JAX in the stack's image. Default: such
    calls are refused. On slices of one host the size of the head is ignored."""
    run_as_user: UserId | None = None
    """User and group ID of the processes of functions, as for a job. 0 lowers the Pod Security level of every team's
    namespace. Default: 10001."""
    privileged: Flag = False
    """Whether functions have all rights on their hosts. This lowers the level of every team's namespace too."""

    @property
    def pod_level(self) -> PodLevel:
        """Return the strictest level that admits the pods of functions."""
        return level_of_rights(self.run_as_user, self.privileged)


type AnyJob = TrainingJob | ContainerJob
"""A job of any kind that a stack file may have."""


def group_order(preferences: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return one order of slice groups that keeps the order within each preference.

    Raise graphlib.CycleError if there is no such order.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for preference in preferences:
        sorter.add(preference[0])
        for better, worse in pairwise(preference):
            sorter.add(worse, better)
    return tuple(sorter.static_order())


def sweep_runs(name: str, written: Section) -> Iterator[tuple[str, Section]]:
    """Yield the name of each run of a sweep without `sweep_errors`, and its section of the stack file.

    The name of a run ends with the positions of its values in their lists, so adding a value to the end of a list does
    not change the name of any other run.
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
        elif repeated := _find_repeated(cast(list[object], values)):
            yield FieldError(f"{place}.{setting}", "each value once", f"{repeated[0]!r} twice", "remove one of them")
        else:
            sizes.append(len(cast(list[object], values)))
    if prod(sizes) > MAX_SWEEP_RUNS:
        got = f"{prod(sizes)} ({' x '.join(map(str, sizes))})"
        yield FieldError(place, f"at most {MAX_SWEEP_RUNS} runs", got, "write fewer values, or two sweeps")


def sweep_of(name: str, sweep: Mapping[str, object]) -> str | None:
    """Return the sweep that the run of this name belongs to; `None` if `sweep` is empty."""
    return name.rsplit("-", len(sweep))[0] if sweep else None


def _find_repeated(values: list[object]) -> list[object]:
    return [value for place, value in enumerate(values) if value in values[:place]]


def _with_value(section: Section, path: Sequence[str], value: object) -> Section:
    first, *rest = path
    if not rest:
        return {**section, first: value}
    inner = section.get(first)
    return {**section, first: _with_value(cast(Section, inner) if isinstance(inner, Mapping) else {}, rest, value)}

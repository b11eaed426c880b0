"""Finds a deployed stack, with its outputs, cluster, files and jobs."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cli import stack_file
from cli.answer import Halt, waiting
from cli.sandbox_folder import engine_options, find_sandbox, stack_command
from infra.cluster.kubernetes import (
    FORBIDDEN,
    UNAUTHORIZED,
    UNREACHABLE,
    ApiError,
    ApiServer,
    CredentialsError,
    right,
)
from infra.cluster.stacks import Stacks, StacksError, read_published
from infra.stack.command_lines import Reader
from infra.stack.manifests import Object
from infra.stack.names import (
    COLLECTIONS,
    CONFIG_MAPS,
    JOBSET_GROUP,
    JOBSETS,
    KUEUE_API_VERSION,
    PUBLISHED,
    QUEUE_LABEL,
    team_of,
)
from infra.stack.published import Published, RecordError
from infra.stack.settings.errors import nearest

_NOT_DEPLOYED = "not deployed yet"
_NOT_KNOWN = {
    "no stack named": _NOT_DEPLOYED,
    "PULUMI_ACCESS_TOKEN must be set for login": f"{_NOT_DEPLOYED}, or unknown because Pulumi is not logged in",
    "program pulumi on the PATH, found none": f"{_NOT_DEPLOYED}, or unknown because Pulumi is not installed",
}
"""Reason why a stack is not known, by the error of Pulumi before a first `up`."""


class NotDeployed(Halt):
    """Raised when no stack of the name has a cluster, as far as this user's Pulumi knows."""

    def __init__(self, message: str, reason: str) -> None:
        """`reason` is a few words for a list of checks."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class JobRef:
    """Name, namespace and queue of a job."""

    name: str
    namespace: str
    queue: str
    """ClusterQueue of its team, which has the name of the team. Empty: the job names no queue."""
    kind: str = "JobSet"
    """Kind of its object, which in a foreign cluster may be `Job`, `TrainJob` or any other that Kueue admits."""

    @classmethod
    def of(cls, jobset: Object, namespace: str, kind: str = "JobSet") -> "JobRef":
        metadata = jobset["metadata"]
        return cls(metadata["name"], namespace, team_of(metadata.get("labels", {}).get(QUEUE_LABEL, "")), kind)

    @property
    def full_name(self) -> str:
        """Name that is unique in the cluster."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Kubectl:
    """Choice of a cluster and a namespace, in kubectl's words. None: kubectl's own default."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None

    @property
    def words(self) -> list[str]:
        """Options of a command that make the same choice."""
        return [word for name, value in vars(self).items() if value for word in (f"--{name}", value)]


@dataclass(frozen=True)
class Foreign:
    """What a cluster serves whose jobs and queues belong to no stack, or a namespace of it."""

    namespace: str
    kueue: str | None
    """Version of Kueue's API, such as `kueue.x-k8s.io/v1beta2`. None: it serves none that this program reads."""
    has_jobsets: bool
    notes: tuple[str, ...]
    """What it does not serve."""


@dataclass(frozen=True)
class Deployed:
    """A deployed stack, or a foreign cluster."""

    stack: str
    """Name of the stack. Empty: the cluster is foreign."""
    outputs: Mapping[str, Any]
    api: ApiServer
    """API server of its cluster, accessed as this user."""
    storage: str
    """Root of its checkpoint bucket: `gs://BUCKET`, or a folder of the sandbox."""
    jobs: tuple[JobRef, ...]
    sandbox: Path | None = None
    """Folder of the sandbox that has the stack. None: it is in Google Cloud."""
    kubectl: Kubectl | None = None
    """Choice of the cluster by a kubeconfig. None: Pulumi knows the stack."""
    foreign: Foreign | None = None
    """The foreign cluster. None: a stack published its record in the namespace, or Pulumi knows it."""

    @property
    def place(self) -> str:
        """Where its jobs are, in words: `stack dev` or `namespace default`."""
        return f"namespace {self.foreign.namespace}" if self.foreign else f"stack {self.stack}"

    @property
    def options(self) -> str:
        """Options with which a command selects the stack, such as `-s dev --sandbox` or `--namespace team`."""
        if self.kubectl:
            return shlex.join(self.kubectl.words)
        return shlex.join(["-s", self.stack, *self.engine_options])

    @property
    def engine_options(self) -> tuple[str, ...]:
        """Those of a command that deploys the stack. Members without access to Pulumi must ask its owner."""
        return () if self.kubectl else engine_options(self.stack, self.sandbox)

    @property
    def reader(self) -> Reader:
        """Return the person who runs the command, for advice."""
        return Reader(self.stack, self.options, self.engine_options, self._kubectl_words)

    @property
    def _kubectl_words(self) -> str:
        if self.sandbox:
            from sandbox.site import KUBECONFIG

            return f"KUBECONFIG={shlex.quote(str(self.sandbox / KUBECONFIG))} kubectl"
        # Each command names its namespace.
        return shlex.join(["kubectl", *(replace(self.kubectl, namespace=None).words if self.kubectl else ())])

    @property
    def namespaces(self) -> list[str]:
        """Namespaces of the stack's teams, which have its jobs."""
        if self.foreign:
            return [self.foreign.namespace]
        queues: Mapping[str, str] = self.outputs.get("queues", {})
        return sorted({*queues.values(), *(job.namespace for job in self.jobs)})

    def served(self, path: str) -> str:
        """Return a path of Kueue's API in the version that the cluster serves."""
        version = self.foreign.kueue if self.foreign else None
        return path.replace(KUEUE_API_VERSION, version) if version else path

    def job(self, name: str | None) -> JobRef:
        """Return the stack's own job of a name, or its only job if `name` is None. Raise Halt unless it is one job."""
        if name is None and self.kubectl:
            # A member asks about jobs of the team, not only about those of the stack file.
            found = [ref for namespace in self.namespaces for ref in self._listed(namespace)]
            return choose_job(self.place, found, name)
        return choose_job(self.place, self.jobs, name)

    def find(self, name: str | None) -> JobRef:
        """Return the job `NAME` or `NAMESPACE/NAME`, even if it was submitted by hand; None: the stack's only job.

        Raise Halt unless it is one job, or UNREACHABLE if the cluster does not answer.
        """
        if name is None:
            return self.job(None)
        namespace, _, short = name.rpartition("/")
        if not NAME.fullmatch(short):
            raise Halt(f"expected the name of a job, which has letters, digits, dots and dashes, got {name!r}")
        own = [job for job in self.jobs if job.name == short]
        others = {each for each in self.namespaces if namespace in ("", each)} - {job.namespace for job in own}
        submitted = [found for each in sorted(others) if (found := self._submitted(each, short))]
        if self.foreign and not submitted:
            kinds = " or ".join(self._kinds)
            raise Halt(f"{self.place} has no {kinds} {name!r}; `{self.reader.command('list')}` lists the jobs")
        return choose_job(self.place, [*own, *submitted] or self.jobs, name)

    def word_for(self, job: JobRef) -> str:
        """Return the word that selects a job in a command. Two teams may have jobs of one name."""
        return job.full_name if len(self.namespaces) > 1 else job.name

    def job_folder(self, job: JobRef) -> str:
        return f"{self.storage}/{job.name}"

    @property
    def _kinds(self) -> Mapping[str, str]:
        """Paths of its jobs by kind. Those of a stack are JobSets."""
        return COLLECTIONS if self.foreign else {"JobSet": JOBSETS}

    def _listed(self, namespace: str) -> Iterator[JobRef]:
        path = ""
        try:
            for kind, path in self._kinds.items():
                for each in (self.api.find(path.format(namespace)) or {"items": []})["items"]:
                    if kind == "JobSet" or QUEUE_LABEL in each["metadata"].get("labels", {}):
                        yield JobRef.of(each, namespace, kind)
        except UNREACHABLE as error:
            raise Halt(_why(error, path.format(namespace))) from None

    def _submitted(self, namespace: str, name: str) -> JobRef | None:
        for kind, path in self._kinds.items():
            try:
                found = self.api.find(f"{path.format(namespace)}/{name}")
            except ApiError as error:
                if self.foreign:
                    raise Halt(_why(error, path.format(namespace))) from None
                continue  # A namespace that this user may not read has none of their jobs.
            if found:
                return JobRef.of(found, namespace, kind)
        return None


NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_NAMED = 20
"""Most jobs that a message names."""


def choose_job(place: str, jobs: Sequence[JobRef], name: str | None) -> JobRef:
    """Return the job `NAME` or `NAMESPACE/NAME`, or the only job if `name` is None. Raise Halt unless it is one job.

    Of several kinds with one name in a namespace, a JobSet is meant, then a batch Job.
    """
    found = [job for job in jobs if name in (None, job.name, job.full_name)]
    if name is not None:
        in_order = sorted(found, key=lambda job: (job.kind == "JobSet", job.kind == "Job"))
        found = [*{job.full_name: job for job in in_order}.values()]
    if name is not None and len(found) > 1:
        names = " or ".join(job.full_name for job in found)
        raise Halt(f"expected the name of one job, got {name!r}, which several namespaces have; use {names}")
    if len(found) != 1:
        names = ", ".join(job.name for job in jobs[:_NAMED]) or "none"
        more = f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""
        got = "got no name" if name is None else f"got {name!r}"
        raise Halt(f"expected one of the jobs of {place} ({names}{more}), {got}")
    return found[0]


def deployed(stack: str, sandbox: Path | None) -> Deployed:
    """Return a stack in the sandbox in a folder, or of the user's own Pulumi if `sandbox` is None.

    Raise NotDeployed if it is not up, Halt if it does not exist or there is no sandbox, StacksError if there are no
    credentials.
    """
    where = Stacks()
    if sandbox:
        # Other stacks need nothing of the sandbox.
        from sandbox.stacks import SandboxStacks

        find_sandbox(sandbox, stack)
        where = SandboxStacks(sandbox)
    up = stack_command("up", stack, sandbox)
    try:
        with waiting(f"reading the outputs of {stack}"):
            outputs = where.outputs(stack)
    except StacksError as error:
        if stack not in stack_file.names():
            raise Halt(_unknown(stack, where, error)) from None
        other = "--sandbox" if sandbox is None else "--engine pulumi"
        told = (
            f"expected stack {stack!r} to be up, but Pulumi cannot read it: {error}\n"
            f"Bring it up with `{up}`, or use {other}"
        )
        reasons = [reason for part, reason in _NOT_KNOWN.items() if part in str(error)]
        raise (NotDeployed(told, reasons[0]) if reasons else Halt(told)) from None
    if not {"endpoint", "jobs"} <= outputs.keys():
        told = f"expected stack {stack!r} to be up, got one without a cluster; run `{up}`"
        raise NotDeployed(told, _NOT_DEPLOYED)
    return from_outputs(stack, outputs, where)


def _unknown(stack: str, where: Stacks, error: StacksError) -> str:
    """Return the message about a stack that has no stack file and that Pulumi cannot read because of `error`."""
    files, up = stack_file.names(), list[str]()
    try:
        up = where.names()
        known = f"deployed: {', '.join(up) or 'none'}"
    except StacksError as why:
        known = f"the deployed ones are unknown, because Pulumi cannot list them: {why}"
    if stack in up:
        return f"expected stack {stack!r} to be up, but Pulumi cannot read it: {error}"
    meant = nearest(stack, [*files, *up])
    return (
        f"{f'did you mean {meant}? ' if meant else ''}there is no stack {stack!r}; stack files in"
        f" {stack_file.stacks_folder()}: {', '.join(files) or 'none'}; {known}\n"
        f"Choose one of them with --stack, or create it with `multislice init {stack}`"
    )


def from_outputs(stack: str, outputs: Mapping[str, Any], where: Stacks) -> Deployed:
    """Return the stack with these outputs. Raise Halt if another version wrote them, or StacksError."""
    try:
        jobs = tuple(JobRef(job["name"], job["namespace"], job["queue"]) for job in outputs["jobs"])
        files = where.files(outputs["checkpoint_bucket"])
        return Deployed(stack, outputs, where.api(outputs), files, jobs, where.sandbox)
    except (KeyError, TypeError) as error:
        raise Halt(
            f"expected stack {stack!r} to have the outputs of this version, got no {error}, because another version"
            f" deployed it; run `{stack_command('up', stack, where.sandbox)}`"
        ) from None


def observed_by_kubeconfig(kubectl: Kubectl) -> Deployed:
    """Return the stack that publishes its record in a namespace, or the namespace of a foreign cluster.

    Raise Halt if the cluster cannot be reached, or the record cannot be read.
    """
    api, namespace = _connect(kubectl)
    try:
        published = read_published(api, namespace)
    except (*UNREACHABLE, RecordError) as error:
        if not isinstance(error, ApiError) or error.status != FORBIDDEN:
            raise Halt(_advise(error)) from None
        note = f"you may not {right(CONFIG_MAPS.format(namespace))}, where a stack would publish its record"
        return _foreign(api, namespace, kubectl, note)
    return _of_record(published, api, namespace, kubectl) if published else _foreign(api, namespace, kubectl)


def foreign_by_kubeconfig(kubectl: Kubectl) -> Deployed:
    """Return a namespace of a cluster, without asking for a record. Raise Halt if the cluster cannot be reached."""
    return _foreign(*_connect(kubectl), kubectl)


def _foreign(api: ApiServer, namespace: str, kubectl: Kubectl, *notes: str) -> Deployed:
    from infra.cluster.kueue_objects import NoKueueError, served_version

    missing, kueue, has_jobsets = list[str](), None, False
    try:
        has_jobsets = api.find(f"/apis/{JOBSET_GROUP}") is not None
        kueue = served_version(api)
    except NoKueueError as error:
        missing.append(f"the cluster has no Kueue that this program reads: {error}")
    except UNREACHABLE as error:
        raise Halt(_advise(error)) from None
    if not has_jobsets:
        missing.append(f"the cluster has no JobSet, whose API group is {JOBSET_GROUP}")
    foreign = Foreign(namespace, kueue, has_jobsets, (*notes, *missing))
    return Deployed("", {}, api, "", (), kubectl=kubectl, foreign=foreign)


def _connect(kubectl: Kubectl) -> tuple[ApiServer, str]:
    """Return the chosen cluster and namespace. Raise Halt without credentials, or if it is no name of a namespace."""
    try:
        api, default = ApiServer.of_kubeconfig(kubectl.kubeconfig, kubectl.context)
    except CredentialsError as error:
        raise Halt(_advise(error)) from None
    namespace = kubectl.namespace or default
    if not NAME.fullmatch(namespace):
        raise Halt(f"expected the name of a namespace, which has letters, digits and dashes, got {namespace!r}")
    return api, namespace


def deployed_by_kubeconfig(kubectl: Kubectl) -> Deployed:
    """Return the stack that publishes its record in a namespace, for users without access to Pulumi.

    Raise Halt if the cluster cannot be reached, the user is no member of the namespace's team, or it has no record.
    """
    api, namespace = _connect(kubectl)
    try:
        published = read_published(api, namespace)
    except (*UNREACHABLE, RecordError) as error:
        raise Halt(_advise_member(error)) from None
    if published is None:
        raise Halt(
            f"expected the namespace of a team, got {namespace!r}, which has no ConfigMap {PUBLISHED}; pass"
            " --namespace, or let the stack's owner deploy it with this version: `multislice up -s STACK`"
        )
    return _of_record(published, api, namespace, kubectl)


def _of_record(published: Published, api: ApiServer, namespace: str, kubectl: Kubectl) -> Deployed:
    from sandbox.site import storage_beside

    if near := storage_beside(api.url):
        # Readers of gs:// know the server of a sandbox only from these variables.
        os.environ.update(near.environment)
    jobs = tuple(JobRef(name, namespace, published.team) for name in published.jobs)
    outputs = published.outputs
    return Deployed(published.stack, outputs, api, outputs["checkpoint_bucket"], jobs, kubectl=kubectl)


def published_for(deployed: Deployed, team: str | None) -> Published:
    """Return what a stack publishes for a team, or for its only team if `team` is None.

    Raise Halt if there is no such team, or its record cannot be read.
    """
    namespaces: Mapping[str, str] = deployed.outputs.get("queues", {})
    chosen = [each for each in namespaces if team in (None, each)]
    if len(chosen) != 1:
        got = "no team" if team is None else repr(team)
        raise Halt(f"expected one of the teams of stack {deployed.stack} ({', '.join(namespaces)}), got {got}")
    try:
        found = read_published(deployed.api, namespaces[chosen[0]])
    except (*UNREACHABLE, RecordError) as error:
        raise Halt(_advise_member(error)) from None
    if found is None:
        raise Halt(f"stack {deployed.stack} was deployed by an older version; {deployed.reader.run_up()}")
    return found


def _why(error: Exception, path: str) -> str:
    if isinstance(error, ApiError) and error.status == FORBIDDEN:
        return f"you may not {right(path)}"
    return _advise(error)


def _advise(error: Exception) -> str:
    status = error.status if isinstance(error, ApiError) else None
    if isinstance(error, RecordError):
        return str(error)
    if status == UNAUTHORIZED:
        return f"expected credentials that the cluster accepts, got: {error}; log in again"
    if status == FORBIDDEN:
        return f"expected a user who may read the cluster, got: {error}"
    return f"expected a kubeconfig of a cluster that answers, got: {error}"


def _advise_member(error: Exception) -> str:
    """Return the advice after a record was asked for, which only members of the team may read."""
    if isinstance(error, ApiError) and error.status == FORBIDDEN:
        return (
            f"expected the namespace of a team that you are a member of, got: {error}; pass --namespace, or let the"
            " stack's owner add you to teams.NAME.members"
        )
    return _advise(error)

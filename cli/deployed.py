"""Finds a deployed stack, with its outputs, cluster, files and jobs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.answer import Halt, waiting
from cli.sandbox_folder import default_sandbox, is_of_sandbox
from infra.job_state import Object
from infra.kubernetes import ApiError, ApiServer
from infra.names import JOBSETS, QUEUE_LABEL, team_of
from infra.stacks import Stacks, StacksError
from sandbox.stacks import stacks_in


@dataclass(frozen=True)
class JobPlace:
    """Name, namespace and queue of a job."""

    name: str
    namespace: str
    queue: str
    """ClusterQueue of its team, which has the name of the team. Empty: the job names no queue."""

    @classmethod
    def of(cls, jobset: Object, namespace: str) -> "JobPlace":
        metadata = jobset["metadata"]
        return cls(metadata["name"], namespace, team_of(metadata.get("labels", {}).get(QUEUE_LABEL, "")))

    @property
    def full_name(self) -> str:
        """Name that is unique in the cluster."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Deployed:
    """A deployed stack."""

    stack: str
    outputs: Mapping[str, Any]
    api: ApiServer
    """API server of its cluster, accessed as this user."""
    storage: str
    """Root of its checkpoint bucket: `gs://BUCKET`, or a folder of the sandbox."""
    jobs: tuple[JobPlace, ...]
    sandbox: Path | None = None
    """Folder of the sandbox that has the stack. None: it is in Google Cloud."""

    @property
    def options(self) -> str:
        """Options with which a command selects the stack, such as `-s dev --sandbox`."""
        words = ["-s", self.stack]
        if self.sandbox is not None and self.sandbox.resolve() != default_sandbox().resolve():
            words += ["--sandbox", str(self.sandbox)]
        elif self.sandbox is not None and not is_of_sandbox(self.stack):
            words += ["--sandbox"]
        return shlex.join(words)

    @property
    def namespaces(self) -> list[str]:
        """Namespaces of the stack's teams, which have its jobs."""
        queues: Mapping[str, str] = self.outputs.get("queues", {})
        return sorted({*queues.values(), *(job.namespace for job in self.jobs)})

    def job(self, name: str | None) -> JobPlace:
        """Return the stack's own job of a name, or its only job if `name` is None. Raise Halt unless it is one job."""
        return choose_job(self.stack, self.jobs, name)

    def find(self, name: str | None) -> JobPlace:
        """Return the job `NAME` or `NAMESPACE/NAME`, even if it was submitted by hand; None: the stack's only job.

        Raise Halt unless it is one job, or UNREACHABLE if the cluster does not answer.
        """
        if name is None:
            return self.job(None)
        namespace, _, short = name.rpartition("/")
        own = [job for job in self.jobs if job.name == short]
        others = {each for each in self.namespaces if namespace in ("", each)} - {job.namespace for job in own}
        submitted = [found for each in sorted(others) if (found := self._submitted(each, short))]
        return choose_job(self.stack, [*own, *submitted] or self.jobs, name)

    def job_folder(self, job: JobPlace) -> str:
        return f"{self.storage}/{job.name}"

    def _submitted(self, namespace: str, name: str) -> JobPlace | None:
        try:
            found = self.api.find(f"{JOBSETS.format(namespace)}/{name}")
        except ApiError:
            return None  # A namespace that this user may not read has none of their jobs.
        return JobPlace.of(found, namespace) if found else None


def choose_job(stack: str, jobs: Sequence[JobPlace], name: str | None) -> JobPlace:
    """Return the job `NAME` or `NAMESPACE/NAME`, or the only job if `name` is None. Raise Halt unless it is one job."""
    found = [job for job in jobs if name in (None, job.name, job.full_name)]
    if name is not None and len(found) > 1:
        names = " or ".join(job.full_name for job in found)
        raise Halt(f"expected the name of one job, got {name!r}, which several namespaces have; use {names}")
    if len(found) != 1:
        names = ", ".join(job.name for job in jobs) or "none"
        got = "got no name" if name is None else f"got {name!r}"
        raise Halt(f"expected one of the jobs of stack {stack} ({names}), {got}")
    return found[0]


def deployed(stack: str, sandbox: Path | None) -> Deployed:
    """Return a stack in the sandbox in a folder, or of the user's own Pulumi if `sandbox` is None.

    Raise Halt if it does not exist or is not up, StacksError if there is no sandbox or are no credentials.
    """
    where = stacks_in(sandbox)
    try:
        with waiting(f"reading the outputs of {stack}"):
            outputs = where.outputs(stack)
    except StacksError as error:
        other = "--sandbox" if sandbox is None else "--engine pulumi"
        raise Halt(
            f"expected stack {stack!r} to be up, but Pulumi cannot read it: {error}\nBring it up, or use {other}"
        ) from None
    if not {"endpoint", "jobs"} <= outputs.keys():
        raise Halt(f"expected stack {stack!r} to be up, got one without a cluster; run `pulumi up --stack {stack}`")
    return from_outputs(stack, outputs, where)


def from_outputs(stack: str, outputs: Mapping[str, Any], where: Stacks) -> Deployed:
    """Return the stack with these outputs. Raise Halt if another version wrote them, or StacksError."""
    try:
        jobs = tuple(JobPlace(job["name"], job["namespace"], job["queue"]) for job in outputs["jobs"])
        files = where.files(outputs["checkpoint_bucket"])
        return Deployed(stack, outputs, where.api(outputs), files, jobs, where.sandbox)
    except (KeyError, TypeError) as error:
        raise Halt(
            f"expected stack {stack!r} to have the outputs of this version, got no {error}, because another version"
            f" deployed it; run `pulumi up --stack {stack}`"
        ) from None

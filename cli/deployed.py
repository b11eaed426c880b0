"""A stack that stands, as commands see it: what it tells of itself, its cluster and its files.

Owns the way from a stack's name to these; what is asked of them is each command's affair.
"""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.environments.backend import BackendError, PulumiBackend, SandboxBackend
from cli.environments.files import OURS
from cli.halt import Halt
from cli.sandbox_folder import SANDBOX, existing
from infra import names

if TYPE_CHECKING:
    from infra.kubernetes import ApiServer


@dataclass(frozen=True)
class JobPlace:
    """A job of a stack."""

    name: str
    namespace: str
    queue: str
    """The ClusterQueue of its team, which has the team's name."""

    @property
    def full_name(self) -> str:
        """The name that no other job of the cluster has."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Deployed:
    """A stack that stands."""

    stack: str
    outputs: Mapping[str, Any]
    """Of its last update."""
    api: "ApiServer"
    """Of its cluster, as the user who asks."""
    storage: str
    """Root of its checkpoint bucket: `gs://BUCKET`, or a folder of the sandbox."""
    jobs: tuple[JobPlace, ...]
    sandbox: Path | None = None
    """Folder of the one that it stands in; None: it stands in Google Cloud."""

    @property
    def options(self) -> str:
        """How a command line names it, such as `-s dev --engine sandbox`."""
        words = ["-s", self.stack]
        if self.sandbox is not None:
            words += ["--engine", "sandbox"]
            words += ["--sandbox", str(self.sandbox)] if self.sandbox != SANDBOX else []
        return shlex.join(words)

    @property
    def namespaces(self) -> list[str]:
        """Where its jobs may be: those of its teams."""
        queues: Mapping[str, str] = self.outputs.get("queues", {})
        return sorted({*queues.values(), *(job.namespace for job in self.jobs)})

    def job(self, name: str | None) -> JobPlace:
        """The job of that name; None: the only one.

        Raises:
            Halt: there is no such job, or it takes a name to know; names those there are.
        """
        found = [job for job in self.jobs if name in (None, job.name)]
        if len(found) != 1:
            names = ", ".join(job.name for job in self.jobs) or "none"
            got = "got no name" if name is None else f"got {name!r}"
            raise Halt(f"expected one of stack {self.stack}'s jobs ({names}), {got}; name one of them")
        return found[0]

    def job_folder(self, job: JobPlace) -> str:
        """Where the job keeps its runs."""
        return f"{self.storage}/{job.name}"

    def call_folder(self, job: JobPlace) -> str:
        """Where the hosts of a call leave what they have to tell; the call is the job."""
        return f"{self.storage}/{names.call_folder(job.namespace, job.name)}"


def deployed(stack: str, sandbox: Path | None) -> Deployed:
    """The stack of that name, in the sandbox in a folder, or of the user's own Pulumi (None).

    Raises:
        Halt: there is no such stack, it is not up, or its cluster cannot be asked.
    """
    backend = PulumiBackend(OURS) if sandbox is None else SandboxBackend(sandbox, OURS)
    try:
        outputs = backend.outputs(stack)
    except BackendError as error:
        choice = "--engine sandbox" if sandbox is None else "--engine pulumi"
        raise Halt(
            f"expected stack {stack!r} to be up, but Pulumi cannot tell: {error}\nBring it up",
            options=f", or look elsewhere: {choice}",
        ) from None
    if not {"endpoint", "jobs"} <= outputs.keys():
        raise Halt(f"expected stack {stack!r} to be up, got one without a cluster; run `pulumi up --stack {stack}`")
    try:
        jobs = tuple(JobPlace(job["name"], job["namespace"], job["queue"]) for job in outputs["jobs"])
        storage = _storage(outputs, sandbox)
    except (KeyError, TypeError) as error:
        raise Halt(
            f"expected stack {stack!r} to tell what this version reads, got no {error}; another version brought it up:"
            f" run `pulumi up --stack {stack}`"
        ) from None
    return Deployed(stack, outputs, _api(outputs, sandbox), storage, jobs, sandbox)


def _api(outputs: Mapping[str, Any], sandbox: Path | None) -> "ApiServer":
    if sandbox is not None:
        from sandbox.access import administrator

        return administrator(existing(sandbox))
    from infra.kubernetes import ApiServer, CredentialsError

    try:
        return ApiServer.at(outputs["endpoint"])
    except CredentialsError as error:
        raise Halt(
            f"expected credentials for the cluster {outputs['cluster']}, got: {error}\n"
            "Log in with `gcloud auth login`, and install the plugin:"
            " `gcloud components install gke-gcloud-auth-plugin`"
        ) from None


def _storage(outputs: Mapping[str, Any], sandbox: Path | None) -> str:
    bucket = outputs["checkpoint_bucket"]
    return bucket if sandbox is None else str(existing(sandbox).buckets / bucket.removeprefix("gs://"))

"""A check and its result; and what a check may ask: the cluster, the stack file, Google Cloud."""

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3

from cli.deployed import Deployed
from infra.kubernetes import ApiServer, Json
from workloads.spec import Spec

_SECONDS = 20.0
if TYPE_CHECKING:
    from infra.settings.stack import Settings


class NotAsked(Exception):
    """A check cannot be made; the message says why."""


class NotLoggedIn(NotAsked):
    """A login of gcloud is missing or has expired."""


def _address(service: str) -> str:
    return f"https://{service}.googleapis.com"


@dataclass(frozen=True)
class Google:
    """A project, as one user."""

    project: str
    region: str
    token: str
    pool: urllib3.PoolManager
    address: Callable[[str], str] = _address
    """Address of a service by its name."""

    def get(self, service: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer of the service.

        Raises:
            NotAsked: it refuses, or cannot be reached.
        """
        url = f"{self.address(service)}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            answer = self.pool.request(
                "GET", url, headers={"Authorization": f"Bearer {self.token}"}, timeout=_SECONDS, retries=False
            )
            content: Any = json.loads(answer.data)
        except (urllib3.exceptions.HTTPError, ValueError) as error:
            raise NotAsked(f"{service} does not answer: {error}") from None
        if answer.status >= 300:
            error = content.get("error") if isinstance(content, dict) else None
            said = error.get("message", answer.reason) if isinstance(error, dict) else answer.reason
            raise NotAsked(f"{service} refuses: {said}")
        if not isinstance(content, dict):
            raise NotAsked(f"{service} did not answer with an object")
        return content


def google(project: str, region: str) -> Google:
    """Return the project as the user of gcloud.

    Raises:
        NotAsked: there is no gcloud, or no login.
    """
    return Google(project, region, token("auth"), urllib3.PoolManager())


def token(*login: str) -> str:
    """Return an access token of a login: `auth` is gcloud's own, `auth application-default` that of other programs.

    Raises:
        NotAsked: there is no gcloud.
        NotLoggedIn: there is no login.
    """
    if shutil.which("gcloud") is None:
        raise NotAsked("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    command = ["gcloud", *login, "print-access-token"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAsked(f"gcloud does not answer: {error}") from None
    if asked.returncode:
        said = (asked.stderr.strip().splitlines() or ["it gives no reason"])[-1]
        raise NotLoggedIn(f"gcloud has no credentials: {said}; run `gcloud {' '.join(login)} login`")
    return asked.stdout.strip()


class Verdict(StrEnum):
    """Result of a check."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class Check(Spec):
    """One question and its answer."""

    group: str = ""
    subject: str
    verdict: Verdict
    says: str
    """What was found, or why the check was skipped."""
    fix: str = ""
    """What repairs it; empty if it has not failed."""


@dataclass(frozen=True)
class Scope:
    """The stack, and what checks may ask about it."""

    stack: str
    settings: "Settings | None"
    """Settings of its file; None: no such file can be read here."""
    deployed: Deployed | None
    """None: it is not up, or there are no credentials for its cluster."""
    missing: str
    """Why not."""
    sandbox: bool
    google: Google | NotAsked
    silent: bool = False
    """Whether the cluster did not answer, so that no check waits for it again."""

    @property
    def api(self) -> ApiServer:
        """The cluster.

        Raises:
            NotAsked: it cannot be asked.
        """
        if self.silent:
            raise NotAsked("the cluster does not answer, see above")
        return self.up.api

    @property
    def up(self) -> Deployed:
        """The deployed stack.

        Raises:
            NotAsked: it is not deployed.
        """
        if self.deployed is None:
            raise NotAsked("the stack cannot be reached, see credentials")
        return self.deployed

    def in_google(self) -> Google:
        """Google Cloud.

        Raises:
            NotAsked: the stack is in the sandbox, or there are no credentials.
        """
        if isinstance(self.google, NotAsked):
            raise self.google
        return self.google

    def listed(self, path: str) -> list[Json]:
        """Return the objects of a collection of the cluster."""
        return self.api.request("GET", path)["items"]


type Findings = Iterator[Check]


def ok(subject: str, says: str) -> Check:
    """Return a check that passed."""
    return Check(subject=subject, verdict=Verdict.OK, says=says)


def failed(subject: str, says: str, fix: str) -> Check:
    """Return a check that failed, with what repairs it."""
    return Check(subject=subject, verdict=Verdict.FAILED, says=says, fix=fix)


def judged(subject: str, says: str, *, passes: bool, fix: str) -> Check:
    """Return a check that finds the same whether it passed or failed."""
    return ok(subject, says) if passes else failed(subject, says, fix)


def skipped(subject: str, why: str) -> Check:
    """Return a check that could not be made."""
    return Check(subject=subject, verdict=Verdict.SKIPPED, says=why)

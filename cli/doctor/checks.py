"""Defines a check and its result, and gives checks access to the cluster, the stack file and Google Cloud."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import urllib3

from cli.deployed import Deployed
from cli.sandbox_folder import stack_command
from infra.cluster.kubernetes import ApiServer, Json
from infra.stack.names import KUEUE_GROUP
from workloads.spec import Spec

_SECONDS = 20.0
if TYPE_CHECKING:
    from infra.stack.settings.stack import Settings


class NotAsked(Exception):
    """Raised when a check cannot be made. The message says why."""


class NotLoggedIn(NotAsked):
    """Raised when a login of gcloud is missing or has expired."""


@dataclass(frozen=True)
class Google:
    """A project of Google Cloud, accessed as one user."""

    project: str
    region: str
    token: str
    pool: urllib3.PoolManager
    address: Callable[[str], str] = "https://{}.googleapis.com".format
    """Returns the URL of a service."""

    def get(self, service: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer of the service. Raise NotAsked if it refuses or cannot be reached."""
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
            raise NotAsked(f"{service} did not return a JSON object")
        return content


def google(project: str, region: str) -> Google:
    """Return the project, accessed as the user of gcloud. Raise NotAsked without gcloud or its login."""
    return Google(project, region, token("auth"), urllib3.PoolManager())


def token(*login: str) -> str:
    """Return an access token. `login` is `auth` for gcloud's own or `auth application-default` for other programs'.

    Raise NotAsked if gcloud is not installed, NotLoggedIn if the login is missing or has expired.
    """
    if shutil.which("gcloud") is None:
        raise NotAsked("gcloud is not installed: https://cloud.google.com/sdk/docs/install")
    command = ["gcloud", *login, "print-access-token"]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotAsked(f"gcloud does not answer: {error}") from None
    if asked.returncode:
        # Advice to log in follows the reason.
        said = (asked.stderr.strip().splitlines() or ["no reason given"])[0]
        said = re.sub(r"^ERROR: \(\S+\) ", "", said)
        raise NotLoggedIn(f"gcloud has no credentials: {said}; run `gcloud {' '.join(login)} login`")
    return asked.stdout.strip()


class Verdict(StrEnum):
    """Result of a check."""

    OK = "ok"
    FAILED = "failed"
    SKIPPED = "skipped"


class Check(Spec):
    """A check with its result."""

    group: str = ""
    subject: str
    verdict: Verdict
    says: str
    """Result of the check, or why it was skipped."""
    fix: str = ""
    """How to repair it. Empty: the check did not fail."""


@dataclass(frozen=True)
class Scope:
    """The stack that checks examine."""

    stack: str
    settings: "Settings | None"
    """Settings of the stack file. None: the file cannot be read."""
    deployed: Deployed | None
    """The deployed stack. None: it is not up, or credentials for its cluster are missing."""
    missing: str | NotAsked
    """Why `deployed` is None. NotAsked: it is not up yet, which is no failure."""
    sandbox: Path | None
    """Folder of the sandbox that has the stack. None: Google Cloud."""
    google: Google | NotAsked
    unread: str = ""
    """Why `settings` is None."""
    silent: bool = False
    """Whether the cluster did not answer an earlier check, so that no other check waits for it."""

    @property
    def api(self) -> ApiServer:
        """API server of the cluster. Raise NotAsked if it cannot be reached."""
        if self.silent:
            raise NotAsked("the cluster does not answer, see above")
        return self.up.api

    @property
    def up(self) -> Deployed:
        """The deployed stack. Raise NotAsked if it cannot be reached."""
        if self.deployed is None:
            if isinstance(self.missing, NotAsked):
                raise self.missing
            raise NotAsked("the stack cannot be reached, see the group credentials")
        return self.deployed

    def update(self, *options: str) -> str:
        """Return the command line that deploys the stack."""
        return stack_command("up", self.stack, self.sandbox, *options)

    def in_google(self) -> Google:
        """Return access to Google Cloud. Raise NotAsked in the sandbox and without credentials."""
        if isinstance(self.google, NotAsked):
            raise self.google
        return self.google

    def listed(self, path: str) -> list[Json]:
        """Return the objects of a collection. Raise NotAsked if a foreign cluster has none of its kind."""
        if KUEUE_GROUP in path and self.up.foreign and not self.up.foreign.kueue:
            raise NotAsked("the cluster has no Kueue whose API this program reads")
        # The API server leaves out a specification in which nothing is set.
        return [{"spec": {}, **each} for each in self.api.request("GET", self.up.served(path))["items"]]


type Findings = Iterator[Check]


def ok(subject: str, says: str) -> Check:
    """Return a check that passed."""
    return Check(subject=subject, verdict=Verdict.OK, says=says)


def failed(subject: str, says: str, fix: str) -> Check:
    """Return a check that failed, with how to repair it."""
    return Check(subject=subject, verdict=Verdict.FAILED, says=says, fix=fix)


def judge(subject: str, says: str, *, passes: bool, fix: str) -> Check:
    """Return a check that passed or failed, with the same result text."""
    return ok(subject, says) if passes else failed(subject, says, fix)


def skipped(subject: str, why: str) -> Check:
    """Return a check that could not be made."""
    return Check(subject=subject, verdict=Verdict.SKIPPED, says=why)

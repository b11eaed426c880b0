"""Google Cloud's own APIs, as the user of gcloud asks them."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import urllib3

_SECONDS = 20.0


class NotAsked(Exception):
    """Nobody can be asked; the message says why."""


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
    """Of a service by its name."""

    def get(self, service: str, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What the service answers.

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
            raise NotAsked(f"{service} answers with what is no object")
        return content


def google(project: str, region: str) -> Google:
    """The project as the user of gcloud.

    Raises:
        NotAsked: there is no gcloud, or nobody is logged in.
    """
    return Google(project, region, token("auth"), urllib3.PoolManager())


def token(*login: str) -> str:
    """Return an access token of a login: `auth` is gcloud's own, `auth application-default` that of other programs.

    Raises:
        NotAsked: there is no gcloud.
        NotLoggedIn: nobody is logged in.
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

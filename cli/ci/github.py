"""GitHub's REST API, as far as the workflows need it: comments and issues that a later run finds again.

By the standard library, not by the `gh` command: a test can serve it on loopback, and nothing need be installed.
What a text says is its author's business.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from cli.halt import Halt

_API_URL = "https://api.github.com"
_API_VERSION = "2022-11-28"
_PER_PAGE = 100
"""The most that GitHub gives: https://docs.github.com/rest/using-the-rest-api/using-pagination-in-the-rest-api"""
_TIMEOUT_SECONDS = 30
_BOT = "Bot"
"""Type of the user as whom a workflow writes. What a person wrote is never overwritten, whatever it begins with."""
_NEXT_STEP = {
    401: "pass the workflow's token, `env: GITHUB_TOKEN: ${{ github.token }}`, or at a desk that of `gh auth token`",
    403: "give the job the right that it lacks: `pull-requests: write` for comments, `issues: write` for issues;"
    " environments are an administrator's of the repository",
    404: "check the name or number and that the token may read this repository",
}

Item = dict[str, Any]


@dataclass(frozen=True)
class Access:
    """A repository on GitHub, and the token with which it is called."""

    api_url: str
    repository: str
    """OWNER/NAME."""
    token: str

    def call(self, method: str, path: str, content: Mapping[str, object] | None = None) -> Any:
        """Return GitHub's answer, None if empty. `path` is relative to the repository's unless it begins with /.

        Raises:
            Halt: it refuses, or does not answer.
        """
        place = path if path.startswith("/") else f"/repos/{self.repository}/{path}".rstrip("/")
        request = urllib.request.Request(
            f"{self.api_url}{place}",
            method=method,
            data=None if content is None else json.dumps(content).encode(),
            headers={
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {self.token}",
                "Content-Type": "application/json",
                "X-GitHub-Api-Version": _API_VERSION,
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as answer:
                said = answer.read()
                return json.loads(said) if said else None
        except urllib.error.HTTPError as error:
            said = error.read().decode(errors="replace")
            next_step = _NEXT_STEP.get(error.code, "try again; https://www.githubstatus.com tells of outages")
            raise Halt(f"GitHub refused {method} {place}: {error.code} {said}\n{next_step}") from error
        except (urllib.error.URLError, TimeoutError) as error:
            raise Halt(f"no answer from {self.api_url} to {method} {place}: {error}\ntry again") from error

    def listed(self, path: str, key: str | None = None) -> Iterator[Item]:
        """Everything on all pages of a listing, which GitHub's answer may hold under a key."""
        joint = "&" if "?" in path else "?"
        page = 1
        while True:
            answer = self.call("GET", f"{path}{joint}per_page={_PER_PAGE}&page={page}")
            items = cast("list[Item]", answer[key] if key else answer)
            yield from items
            if len(items) < _PER_PAGE:
                return
            page += 1


@dataclass(frozen=True)
class Run:
    """The run of a workflow that this process is part of."""

    access: Access
    server_url: str
    run_id: str
    commit: str

    @property
    def link(self) -> str:
        return f"{self.server_url}/{self.access.repository}/actions/runs/{self.run_id}"


def current_run(environment: Mapping[str, str]) -> Run:
    """The run that the environment of a GitHub runner tells of.

    Raises:
        Halt: variables are missing; the message names them.
    """
    of_access = ("GITHUB_API_URL", "GITHUB_REPOSITORY", "GITHUB_TOKEN")
    of_run = ("GITHUB_SERVER_URL", "GITHUB_RUN_ID", "GITHUB_SHA")
    names = (*of_access, *of_run)
    missing = [name for name in names if not environment.get(name)]
    if missing:
        raise Halt(
            f"expected the variables of a GitHub workflow, these are missing: {', '.join(missing)}.\n"
            "A runner sets all but the token; the step passes that: `env: GITHUB_TOKEN: ${{ github.token }}`"
        )
    return Run(Access(*(environment[name] for name in of_access)), *(environment[name] for name in of_run))


def desk(repository: str, environment: Mapping[str, str]) -> Access:
    """The access of a person, whose token is in the environment.

    Raises:
        Halt: there is no token.
    """
    token = environment.get("GITHUB_TOKEN")
    if not token:
        raise Halt("expected a token in GITHUB_TOKEN, got none; run `export GITHUB_TOKEN=$(gh auth token)`")
    return Access(environment.get("GITHUB_API_URL") or _API_URL, repository, token)


class Repository:
    """Comments, issues and branches of a repository."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def put_comment(self, number: int, marker: str, body: str) -> str:
        """Write the comment of that marker on a pull request, over the earlier one if there is one; its address."""
        comments = f"issues/{number}/comments"
        earlier = self._written(comments, marker)
        if earlier:
            return self._access.call("PATCH", f"issues/comments/{earlier['id']}", {"body": body})["html_url"]
        return self._access.call("POST", comments, {"body": body})["html_url"]

    def put_issue(self, marker: str, title: str, body: str, label: str) -> str:
        """Write the open issue of that marker and label, over the earlier text if there is one; its address."""
        earlier = self._written(f"issues?state=open&labels={label}", marker)
        if earlier:
            return self._access.call("PATCH", f"issues/{earlier['number']}", {"title": title, "body": body})["html_url"]
        return self._access.call("POST", "issues", {"title": title, "body": body, "labels": [label]})["html_url"]

    def close_issue(self, marker: str, label: str, why: str) -> str | None:
        """Close the open issue of that marker and label, saying why; its address, None if there is none."""
        earlier = self._written(f"issues?state=open&labels={label}", marker)
        if not earlier:
            return None
        self._access.call("POST", f"issues/{earlier['number']}/comments", {"body": why})
        return self._access.call("PATCH", f"issues/{earlier['number']}", {"state": "closed"})["html_url"]

    def head(self, branch: str) -> str:
        """The newest commit of a branch."""
        return self._access.call("GET", f"commits/{branch}")["sha"]

    def _written(self, listing: str, marker: str) -> Item | None:
        """The first of the listing that a workflow wrote under that marker; the user of a deleted account is null."""
        for item in self._access.listed(listing):
            if (item["user"] or {}).get("type") == _BOT and (item["body"] or "").startswith(marker):
                return item
        return None

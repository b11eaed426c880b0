"""Posts the comment with a stack's preview and the issue about a stack's drift on GitHub.

Requests use GitHub's program `gh`, which handles the login, the pages of a listing and the errors. Each stack has one
comment and one issue. A hidden first line, the mark, identifies the one that an earlier run wrote.
"""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.answer import NEGATIVE, Halt
from infra.review.preview import MOST_CHARACTERS, mark
from workloads.terminal import inert

LABEL = "drift"
_BOT = "Bot"
"""Type of the user of a workflow. A text of a person is never overwritten, even if it has the mark."""
_NO_TEXT = "The command ended before it printed anything; see the messages of the run."

Item = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """The workflow run of this process."""

    repository: str
    """Repository, as OWNER/NAME."""
    server_url: str
    run_id: str
    commit: str

    @property
    def link(self) -> str:
        return f"{self.server_url}/{self.repository}/actions/runs/{self.run_id}"


def current_run(environment: Mapping[str, str]) -> Run:
    """Return the run that the environment of a GitHub runner describes. Raise Halt if variables are missing."""
    names = ("GITHUB_REPOSITORY", "GITHUB_SERVER_URL", "GITHUB_RUN_ID", "GITHUB_SHA")
    if missing := [name for name in names if not environment.get(name)]:
        raise Halt(f"expected the variables of a GitHub workflow; these are missing: {', '.join(missing)}")
    return Run(*(environment[name] for name in names))


def comment(stack: str, text: Path, pull_request: int, run: Run) -> str:
    """Post the preview of a stack on its pull request, in place of an earlier comment. Return its URL."""
    marked, repository = mark("preview", stack), f"repos/{run.repository}"
    comments = f"{repository}/issues/{pull_request}/comments"
    earlier = _written(comments, marked)
    body = {"body": _body(marked, text, run)}
    if earlier:
        return api(f"{repository}/issues/comments/{earlier['id']}", "PATCH", body)["html_url"]
    return api(comments, "POST", body)["html_url"]


def drift_issue(stack: str, text: Path, status: int, run: Run) -> str:
    """Open, update or close the issue about a stack's drift. Return a summary. Raise Halt if the drift is unknown."""
    marked, issues = mark("drift", stack), f"repos/{run.repository}/issues"
    if status not in (0, NEGATIVE):
        raise Halt(
            f"`multislice drift -s {stack}` ended with status {status}, so it is unknown whether there is drift;"
            " the step before has its messages",
            status,
        )
    earlier = _written(f"{issues}?state=open&labels={LABEL}", marked)
    if status == NEGATIVE:
        content = {"title": f"{stack} differs from what was declared", "body": _body(marked, text, run)}
        if earlier:
            return f"drift: {api(f'{issues}/{earlier["number"]}', 'PATCH', content)['html_url']}"
        return f"drift: {api(issues, 'POST', content | {'labels': [LABEL]})['html_url']}"
    if not earlier:
        return "no drift"
    api(f"{issues}/{earlier['number']}/comments", "POST", {"body": f"[This run]({run.link}) found no drift."})
    return f"no drift; closed {api(f'{issues}/{earlier["number"]}', 'PATCH', {'state': 'closed'})['html_url']}"


def require_newest(branch: str, run: Run) -> None:
    """Raise Halt unless the run is of the branch's newest commit. An older plan would undo newer changes."""
    newest = api(f"repos/{run.repository}/commits/{branch}")["sha"]
    if newest != run.commit:
        raise Halt(
            f"expected the newest commit of {branch}, {newest}, got {run.commit}.\n"
            "Approve the run of the newest commit: it has a plan of its own, and this plan would undo its changes"
        )


def api(path: str, method: str = "GET", content: Mapping[str, object] | None = None) -> Any:
    """Call GitHub's REST API and return its answer. None: the answer is empty. Raise Halt as `gh` does."""
    body = () if content is None else ("--input", "-")
    answer = gh("api", path, "--method", method, *body, stdin="" if content is None else json.dumps(content))
    return json.loads(answer) if answer.strip() else None


def listed(path: str, key: str | None = None) -> list[Item]:
    """Return all items of a listing. `key` is the key of the items in the answer, if any. Raise as `api` does."""
    pages = json.loads(gh("api", path, "--paginate", "--slurp"))
    return [item for page in pages for item in (page[key] if key else page)]


def gh(*words: str, stdin: str = "") -> str:
    """Run `gh` and return its output. Raise Halt if it fails or is not on the PATH."""
    try:
        ended = subprocess.run(["gh", *words], input=stdin, capture_output=True, text=True, check=False)
    except OSError:
        raise Halt("expected the program gh on the PATH, got none; install it from https://cli.github.com") from None
    if ended.returncode:
        raise Halt(
            f"`gh {' '.join(words)}` failed: {ended.stderr.strip()}\n"
            "A workflow passes `env: GITHUB_TOKEN: ${{ github.token }}` and has the right `pull-requests: write` for"
            " comments, `issues: write` for issues; a person runs `gh auth login` as an administrator of the repository"
        )
    return ended.stdout


def _written(listing: str, marked: str) -> Item | None:
    """Return the first item with the mark that a workflow wrote. An item of a deleted account has no user."""
    for item in listed(listing):
        if (item["user"] or {}).get("type") == _BOT and (item["body"] or "").startswith(marked):
            return item
    return None


def _body(marked: str, text: Path, run: Run) -> str:
    read = inert(text.read_text()) if text.exists() else ""
    content = read.removeprefix(marked).strip() or _NO_TEXT
    if len(content) > MOST_CHARACTERS:
        content = f"{content[:MOST_CHARACTERS]}\n\n(truncated; the run has the full text)"
    return f"{marked}\n{content}\n\n[run]({run.link}) of commit {run.commit[:8]}\n"
